"""The times of all parts into which operators may be divided: of a file, to which those are added
that are measured on this machine."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from dltune.documents import files
from dltune.documents.operator_times import SCHEMA, OperatorTimes, PartTime, load
from dltune.documents.topology import Topology
from dltune.errors import DltuneError, UsageError
from dltune.parallelism.local_times import by_request, requests
from dltune.parallelism.problem import Space
from dltune.parallelism.request import Request
from dltune.planners.parallelism.given import Given
from dltune.planners.shown import counted

TOGETHER = 8  # parts that are timed in turns in one process, and then kept
QUIET = 15.0  # seconds between two sentences on how far it is
BUSY = 0.8  # the part of the time in which a process that only computes has a core, at least

Tell = Callable[[str], None]


def read(path: Path, given: Given, topology: Topology, ways: Space) -> OperatorTimes:
    """Those that a file has of the parts of `ways`. Raises UsageError when it has not all, or has
    them of other devices."""
    found = load(path)
    _require(path, found, topology)
    wanted = requests(given.graph, len(topology.devices), ways)
    chosen = of(found, wanted)
    if chosen is None:
        lacking = _lacking(found, wanted)
        raise UsageError(
            f"{path} lacks {len(lacking)} of the {counted(len(wanted), 'part')} into which "
            f"operators may be divided, such as {lacking[0]}",
            remedy="measure them on such a device: --measure 10m",
        )
    return chosen


def measured(
    path: Path, given: Given, topology: Topology, ways: Space, seconds: float, tell: Tell
) -> OperatorTimes:
    """As `read`, after those that the file lacks, or all where there is none, were measured on this
    machine and added to it. Raises UsageError when its devices are others, or JAX has nothing in
    place of an operator; DltuneError when it takes more than about so many `seconds`: the file then
    has what was measured."""
    from dltune.jax import portion
    from dltune.jax.measured import timed

    wanted = requests(given.graph, len(topology.devices), ways)
    with files.claim(path, overwrite=True) as file, portion.cores(_on_a_host(topology)) as cores:
        _require_known(given, wanted)
        found = _begun(path, topology, cores)
        file.write(found)
        lacking = _lacking(found, wanted)
        began = told = time.monotonic()
        before = _computed()
        if lacking:
            tell(f"{counted(len(lacking), 'part')} of operators to be timed on {_cores(cores)}")
        for first in range(0, len(lacking), TOGETHER):
            spent = time.monotonic() - began
            if spent >= seconds:
                raise DltuneError(
                    f"{first} of {len(lacking)} parts of operators were timed in {spent:.0f} s",
                    remedy=f"{path} keeps them: the same again times the rest",
                )
            some = timed(lacking[first : first + TOGETHER])
            parts = (
                PartTime(one.type, one.inputs, one.output, t.forward, t.backward, one.data)
                for one, t in some.items()
            )
            found = msgspec.structs.replace(found, parts=(*found.parts, *parts))
            file.write(found)
            done, now = first + len(some), time.monotonic()
            if done < len(lacking) and (now - told > QUIET or not first):
                told, left = now, (now - began) / done * (len(lacking) - done)
                tell(f"{done} of {len(lacking)} parts timed, about {left:.0f} s left")
        spent = time.monotonic() - began
        if lacking and (share := (_computed() - before) / spent) < BUSY:
            tell(
                f"operators had a core for {share:.0%} of the time alone: beside other work they "
                "take longer; measure on an idle machine, in another file"
            )
    chosen = of(found, wanted)
    assert chosen is not None  # what was lacking is there
    return chosen


def of(found: OperatorTimes, wanted: Sequence[Request]) -> OperatorTimes | None:
    """The parts that are wanted, in their order; None where one is not there."""
    known = by_request(found)
    if not all(one in known for one in wanted):
        return None
    return msgspec.structs.replace(found, parts=tuple(known[one] for one in wanted))


def again(
    digest: str, wanted: Sequence[Request], documents: Iterable[msgspec.Struct]
) -> OperatorTimes | None:
    """Those that a plan was made with, among documents that may have more by now."""
    every = (of(one, wanted) for one in documents if isinstance(one, OperatorTimes))
    return next((one for one in every if one and files.digest(one) == digest), None)


def _computed() -> float:
    """Seconds of cores that processes had which this one has started and seen end."""
    spent = os.times()
    return spent.children_user + spent.children_system


def _lacking(found: OperatorTimes, wanted: Sequence[Request]) -> list[Request]:
    known = by_request(found)
    return [one for one in wanted if one not in known]


def _begun(path: Path, topology: Topology, cores: int) -> OperatorTimes:
    """The file's, as far as it is. Raises UsageError unless this machine is as its devices."""
    from dltune.jax.measured import framework, update
    from dltune.machine import topology as machine

    name, version = machine.local().name, framework()
    for kind in dict.fromkeys(device.kind for device in topology.devices):
        if kind != name:
            raise UsageError(
                f"the topology's devices are of the kind {kind!r}, and this machine is {name!r}",
                remedy="measure on such a machine, and give the file with --times alone",
            )
    if not path.exists():
        return OperatorTimes(SCHEMA, name, _on_a_host(topology), cores, version, update(), ())
    found = load(path)
    _require(path, found, topology)
    if (found.cores, found.framework) != (cores, version):
        raise UsageError(
            f"{path} has times of {found.framework} on {_cores(found.cores)}, and here are "
            f"{version} and {_cores(cores)}",
            remedy="name another file",
        )
    return found


def _require(path: Path, found: OperatorTimes, topology: Topology) -> None:
    """Raises UsageError when a device of the topology is none of those that were measured."""
    for kind in dict.fromkeys(device.kind for device in topology.devices):
        if kind != found.kind:
            raise UsageError(
                f"{path} has times of devices of the kind {found.kind!r}, and the topology has "
                f"{kind!r}",
                remedy="measure times of such devices",
            )
    if (many := _on_a_host(topology)) != found.devices:
        raise UsageError(
            f"{path} has times of one of {counted(found.devices, 'device')} that share a host's "
            f"cores, and the topology has {many} on a host",
            remedy="measure them for this topology, in another file",
        )


def _on_a_host(topology: Topology) -> int:
    """Raises UsageError when hosts have different numbers of devices, whose cores are not alike."""
    hosts: defaultdict[str, int] = defaultdict(int)
    for device in topology.devices:
        hosts[device.host] += 1
    if len(set(hosts.values())) > 1:
        raise UsageError(
            "the topology's hosts have different numbers of devices, which have not as many cores",
            remedy="leave --times out",
        )
    return next(iter(hosts.values()))


def _require_known(given: Given, wanted: Sequence[Request]) -> None:
    """Raises UsageError when operators are of types for which JAX has nothing here."""
    from dltune.jax.measured import known

    unknown = dict.fromkeys(one.type for one in wanted if not known(one))
    if not unknown:
        return
    operators = given.graph.operators
    if given.measured:
        both = zip(given.measured.forward, given.measured.backward, strict=True)
        sizes, what = [a.best + b.best for a, b in both], "measured time"
    else:
        sizes, what = [one.flops + one.backward_flops for one in operators], "operations"
    share = sum(size for size, one in zip(sizes, operators, strict=True) if one.type in unknown)
    raise UsageError(
        f"JAX has nothing here in place of {', '.join(map(repr, unknown))}, with "
        f"{share / (sum(sizes) or 1.0):.1%} of the {what} of operators",
        remedy="leave --times out, or give these operators a type of docs/reference/formats/operators.md",
    )


def _cores(many: int) -> str:
    return counted(many, "core")
