"""The plan's devices that are on this machine, and the address where their processes meet."""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]

from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.job import ranks
from dltune.systems.parallelism.schemas.strategy import Parallelism

LOOPBACK = "127.0.0.1"
# below those that kernels give out by themselves
_FIRST_PORT, _PORTS = 20_000, 12_000


@dataclass(frozen=True)
class Meeting:
    """`here`: the devices of this machine, by number. `hosts`: at which each device of the plan is
    reached. `address`: of the coordinator. `seed`: what all processes draw from, whatever the
    script leaves open."""

    here: tuple[int, ...]
    hosts: tuple[str, ...]
    address: str
    seed: int


def meeting(section: Parallelism) -> Meeting:
    """Where the devices are on several hosts, each starts its own from the same plan: they agree
    on a port and a seed by its content. Raises UsageError when this machine is none of them."""
    count = len(section.devices)
    hosts = section.hosts
    if len(set(hosts)) <= 1:
        seed = random.SystemRandom().randrange(2**31)
        return Meeting(tuple(range(count)), (LOOPBACK,) * count, ranks.free_address(), seed)
    local = {host for host in set(hosts) if _is_here(host)}
    if not local:
        raise UsageError(
            f"the plan's devices are on the hosts {', '.join(dict.fromkeys(hosts))}; this machine "
            "is none of them",
            remedy="start dltune run with this plan on each of these hosts",
        )
    content = int(documents.digest(section)[:8], 16)
    here = tuple(n for n, host in enumerate(hosts) if host in local)
    address = f"{hosts[0]}:{_FIRST_PORT + content % _PORTS}"
    return Meeting(here, hosts, address, content % 2**31)


def interface(host: str) -> str:
    """The network interface of this machine that has the host's address; empty: not known."""
    try:
        address = socket.gethostbyname(host)
    except OSError:
        return ""
    for name, addresses in psutil.net_if_addrs().items():
        if address in (one.address for one in addresses):
            return str(name)
    return "lo" if address.startswith("127.") else ""


def _is_here(host: str) -> bool:
    """True if an address of this machine is that host's."""
    try:
        with socket.create_server((host, 0)):
            return True
    except OSError:
        return False
