"""The times of all parts into which operators can be divided: those of a file, to which this
machine's measurements are added."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from dltune.base import documents as files
from dltune.base.errors import DltuneError, UsageError
from dltune.base.formatting import counted
from dltune.systems.parallelism.given import Given
from dltune.systems.parallelism.model.local_times import by_request, requests
from dltune.systems.parallelism.model.problem import Space
from dltune.systems.parallelism.model.request import Request
from dltune.systems.parallelism.schemas.operator_times import (
    SCHEMA,
    OperatorTimes,
    PartTime,
    load,
)
from dltune.systems.parallelism.schemas.topology import Topology

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
            f"{path} lacks the times of {len(lacking)} of the {counted(len(wanted), 'part')} into "
            f"which operators can be divided, such as {lacking[0]}",
            remedy="measure them on such a device, for example with --measure 10m",
        )
    return chosen


def measured(
    path: Path, given: Given, topology: Topology, ways: Space, seconds: float, tell: Tell
) -> OperatorTimes:
    """Return the same as `read`, after those that the file lacks, or all where there is none, were
    measured on this machine and added to it. Raises UsageError when its devices are others, or JAX
    has nothing in place of an operator; DltuneError when it takes more than about so many
    `seconds`: the file then has the finished measurements."""
    from dltune.systems.parallelism.jax import portion
    from dltune.systems.parallelism.jax.measured import timed

    wanted = requests(given.graph, len(topology.devices), ways)
    with files.claim(path, overwrite=True) as file, portion.cores(_on_a_host(topology)) as cores:
        _require_known(given, wanted)
        found = _begun(path, topology, cores)
        file.write(found)
        lacking = _lacking(found, wanted)
        began = told = time.monotonic()
        before = _computed()
        if lacking:
            tell(f"timing {counted(len(lacking), 'part')} of operators on {_cores(cores)}")
        for first in range(0, len(lacking), TOGETHER):
            spent = time.monotonic() - began
            if spent >= seconds:
                raise DltuneError(
                    f"--measure ended after {spent:.0f} s with {first} of {len(lacking)} parts of "
                    "operators timed",
                    remedy=f"run the same command again to time the rest; {path} keeps the results",
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
                f"the operators had a core for only {share:.0%} of the time, so the measured times "
                "are too long; measure again on an idle machine, into another file"
            )
    chosen = of(found, wanted)
    assert chosen is not None  # the missing times are there now
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
    """Return the times that a plan was made with, among documents that can have more by now."""
    every = (of(one, wanted) for one in documents if isinstance(one, OperatorTimes))
    return next((one for one in every if one and files.digest(one) == digest), None)


def _computed() -> float:
    """Return seconds of cores of the ended child processes of this process."""
    spent = os.times()
    return spent.children_user + spent.children_system


def _lacking(found: OperatorTimes, wanted: Sequence[Request]) -> list[Request]:
    known = by_request(found)
    return [one for one in wanted if one not in known]


def _begun(path: Path, topology: Topology, cores: int) -> OperatorTimes:
    """The file's, as far as it is. Raises UsageError unless this machine is as its devices."""
    from dltune.system import topology as machine
    from dltune.systems.parallelism.jax.measured import framework, update

    name, version = machine.local().name, framework()
    for kind in dict.fromkeys(device.kind for device in topology.devices):
        if kind != name:
            raise UsageError(
                f"the topology's devices are of the kind {kind!r}, but this machine is of the kind "
                f"{name!r}",
                remedy="measure on a machine of that kind, then pass the file with --times only",
            )
    if not path.exists():
        return OperatorTimes(SCHEMA, name, _on_a_host(topology), cores, version, update(), ())
    found = load(path)
    _require(path, found, topology)
    if (found.cores, found.framework) != (cores, version):
        raise UsageError(
            f"{path} has times of {found.framework} on {_cores(found.cores)}, but this machine has "
            f"{version} and {_cores(cores)}",
            remedy="pass another file to --times",
        )
    return found


def _require(path: Path, found: OperatorTimes, topology: Topology) -> None:
    """Raises UsageError when a device of the topology is none of those that were measured."""
    for kind in dict.fromkeys(device.kind for device in topology.devices):
        if kind != found.kind:
            raise UsageError(
                f"{path} has times of devices of the kind {found.kind!r}, but the topology has "
                f"devices of the kind {kind!r}",
                remedy=f"measure times on a device of the kind {kind!r}",
            )
    if (many := _on_a_host(topology)) != found.devices:
        raise UsageError(
            f"{path} has times for hosts with {counted(found.devices, 'device')}, but the "
            f"topology's hosts have {many}",
            remedy="measure times for this topology, into another file",
        )


def _on_a_host(topology: Topology) -> int:
    """Raises UsageError when hosts have different numbers of devices, whose cores are not alike."""
    hosts: defaultdict[str, int] = defaultdict(int)
    for device in topology.devices:
        hosts[device.host] += 1
    if len(set(hosts.values())) > 1:
        raise UsageError(
            "the topology's hosts have different numbers of devices, so their devices have "
            "different numbers of cores",
            remedy="omit --times",
        )
    return next(iter(hosts.values()))


def _require_known(given: Given, wanted: Sequence[Request]) -> None:
    """Raises UsageError when operators are of types for which JAX has nothing here."""
    from dltune.systems.parallelism.jax.measured import known

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
        f"dltune cannot time operators of the type {', '.join(map(repr, unknown))} with JAX; they "
        f"have {share / (sum(sizes) or 1.0):.1%} of the {what} of all operators",
        remedy="omit --times, or use types listed in docs/reference/formats/operators.md",
    )


def _cores(many: int) -> str:
    return counted(many, "core")
