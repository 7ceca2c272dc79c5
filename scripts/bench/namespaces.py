"""Network namespaces on one machine whose links have a limited rate; needs root."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

# what a link may send at once, and how long a packet may wait before it is dropped
BURST, QUEUE = "128k", "200ms"


@dataclass(frozen=True)
class Namespace:
    name: str
    address: str

    @property
    def command(self) -> tuple[str, ...]:
        """Comes before a command that is to run there."""
        return "ip", "netns", "exec", self.name

    def limit(self, rate: str, burst: str = BURST) -> None:
        """What it sends, at most: a rate as tc reads it, such as 200mbit, and the bytes that may go
        faster after a pause."""
        queue = ["root", "tbf", "rate", rate, "burst", burst, "latency", QUEUE]
        _run(*self.command, "tc", "qdisc", "replace", "dev", "eth0", *queue)


@contextmanager
def namespaces(count: int, rate: str) -> Iterator[list[Namespace]]:
    """So many, on one bridge; gone when the block is left."""
    mark = f"dl{os.getpid()}"
    with ExitStack() as stack:
        bridge = f"{mark}b"
        _run("ip", "link", "add", bridge, "type", "bridge")
        stack.callback(_run, "ip", "link", "del", bridge)
        _run("ip", "link", "set", bridge, "up")
        made = []
        for number in range(count):
            one = Namespace(f"{mark}n{number}", f"10.77.{os.getpid() % 250}.{number + 1}")
            _run("ip", "netns", "add", one.name)
            stack.callback(_run, "ip", "netns", "del", one.name)
            stack.callback(shutil.rmtree, _own_files(one))
            link = f"{mark}v{number}"
            _run("ip", "link", "add", link, "type", "veth", "peer", "eth0", "netns", one.name)
            _run("ip", "link", "set", link, "master", bridge, "up")
            _run("ip", "-n", one.name, "addr", "add", f"{one.address}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _run("ip", "-n", one.name, "link", "set", device, "up")
            one.limit(rate)
            made.append(one)
        yield made


def _own_files(one: Namespace) -> Path:
    """There the machine's name is its address in the namespace: gloo has it from there."""
    folder = Path("/etc/netns") / one.name
    folder.mkdir(parents=True)
    names = f"127.0.0.1 localhost\n{one.address} {socket.gethostname()}\n"
    (folder / "hosts").write_text(names)
    return folder


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
