"""Times of all parts into which operators can be divided, measured with JAX on this machine.

`read` takes the times from a file; `measured` also adds to the file what it lacks.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec

from dltune.analysis.flops import ELEMENTWISE, MOVES
from dltune.base import documents as files
from dltune.base.errors import DltuneError, UsageError
from dltune.base.formatting import counted
from dltune.systems.parallelism.inputs import (
    Given,
    MeasuredCosts,
    by_request,
    requests,
    undivided,
)
from dltune.systems.parallelism.jax import operator_times
from dltune.systems.parallelism.jax.operator_times import Request, Times, unknown_word
from dltune.systems.parallelism.model.problem import Space
from dltune.systems.parallelism.schemas.operators import (
    TIMES_SCHEMA,
    Operators,
    OperatorTimes,
    PartTime,
    load_times,
)
from dltune.systems.parallelism.schemas.topology import Topology

TOGETHER = 8  # parts that are timed in turns in one process, and then kept
QUIET = 15.0  # seconds between two sentences on how far it is
BUSY = 0.8  # the part of the time in which a process that only computes has a core, at least

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """The times that a plan needs. `parts`: on a device; `whole`: undivided, on all cores of a
    host, empty where a device has them all."""

    parts: Sequence[Request]
    whole: Sequence[Request]


def wanted(given: Given, topology: Topology, ways: Space, *, runs: bool) -> Wanted:
    """`ways`: the configurations of each operator; `runs`: the plan is for a job, which one process
    can run, too. Raises UsageError when hosts have different numbers of devices."""
    shared = runs and _on_a_host(topology) > 1
    parts = requests(given.graph, len(topology.devices), ways)
    return Wanted(parts, requests(given.graph, 1, undivided) if shared else ())


def read(
    path: Path, given: Given, topology: Topology, ways: Space, *, runs: bool = False
) -> OperatorTimes:
    """Those that a file has of the parts of `ways`, and what else `wanted` has. Raises UsageError
    when it has not all parts, or has them of other devices."""
    found = load_times(path)
    _require(path, found, topology)
    needed = wanted(given, topology, ways, runs=runs)
    chosen = of(found, needed)
    if chosen is None:
        lacking = _lacking(found.parts, needed.parts)
        raise UsageError(
            f"{path} lacks the times of {len(lacking)} of the "
            f"{counted(len(needed.parts), 'part')} into which operators can be divided, such as "
            f"{lacking[0]}",
            remedy="measure them on such a device, for example with --measure 10m",
        )
    return chosen


def measured(
    path: Path,
    given: Given,
    topology: Topology,
    ways: Space,
    seconds: float,
    tell: Tell,
    *,
    runs: bool = False,
) -> OperatorTimes:
    """Return the same as `read`, after those that the file lacks, or all where there is none, were
    measured on this machine and added to it. Raises UsageError when its devices are others, or JAX
    has nothing in place of an operator; DltuneError when it takes more than about so many
    `seconds`: the file then has the finished measurements."""
    needed = wanted(given, topology, ways, runs=runs)
    many = _on_a_host(topology)
    with files.claim(path, overwrite=True) as file:
        with device_cores(many) as cores:
            _require_known(given, needed.parts)
            found = _begun(path, topology, cores)
        file.write(found)
        timing = _Timing(file, seconds, tell)
        parts, rest = _lacking(found.parts, needed.parts), _lacking(found.whole, needed.whole)
        found = timing.add(found, "parts", parts, many, len(rest))
        found = timing.add(found, "whole", rest, 1)
        timing.end()
    chosen = of(found, needed)
    assert chosen is not None  # the missing times are there now
    return chosen


class _Timing:
    """Measurements that are added to a file, for so many `seconds` together."""

    def __init__(self, file: files.Output, seconds: float, tell: Tell) -> None:
        self._file, self._seconds, self._tell = file, seconds, tell
        self._began = self._told = time.monotonic()
        self._before = _computed()
        self._done = 0

    def add(
        self,
        found: OperatorTimes,
        name: Literal["parts", "whole"],
        lacking: Sequence[Request],
        devices: int,
        then: int = 0,
    ) -> OperatorTimes:
        """Return the times with these under `name`, measured on the cores of one of so many
        `devices`; `then`: as many are measured later. Raises DltuneError when the time is over."""
        with device_cores(devices) as cores:
            if lacking:
                many = counted(len(lacking), "part")
                what = f"{many} of operators" if name == "parts" else f"{many} undivided"
                self._tell(f"timing {what} on {_cores(cores)}")
            for first in range(0, len(lacking), TOGETHER):
                left = len(lacking) - first + then
                self._require_time(left)
                some = timed(lacking[first : first + TOGETHER])
                parts = (
                    PartTime(one.type, one.inputs, one.output, t.forward, t.backward, one.data)
                    for one, t in some.items()
                )
                every = (*getattr(found, name), *parts)
                found = msgspec.structs.replace(found, **{name: every})
                self._file.write(found)
                self._done += len(some)
                self._report(left - len(some))
        return found

    def end(self) -> None:
        """Say whether other work had the cores meanwhile."""
        spent = time.monotonic() - self._began
        if self._done and (share := (_computed() - self._before) / spent) < BUSY:
            self._tell(
                f"the operators had a core for only {share:.0%} of the time, so the measured times "
                "are too long; measure again on an idle machine, into another file"
            )

    def _require_time(self, left: int) -> None:
        spent = time.monotonic() - self._began
        if spent >= self._seconds:
            raise DltuneError(
                f"--measure ended after {spent:.0f} s with {self._done} of {self._done + left} "
                "parts of operators timed",
                remedy=f"run the same command again to time the rest; {self._file.path} keeps the "
                "results",
            )

    def _report(self, left: int) -> None:
        now = time.monotonic()
        if left and (now - self._told > QUIET or self._done <= TOGETHER):
            rest = (now - self._began) / self._done * left
            self._told = now
            self._tell(f"{self._done} of {self._done + left} parts timed, about {rest:.0f} s left")


def of(found: OperatorTimes, needed: Wanted) -> OperatorTimes | None:
    """The times that are needed, in their order; None where one of a part is not there. Those of
    undivided operators are all there or none: a plan can do without."""
    parts, whole = by_request(found.parts), by_request(found.whole)
    if not all(one in parts for one in needed.parts):
        return None
    every = all(one in whole for one in needed.whole)
    return msgspec.structs.replace(
        found,
        parts=tuple(parts[one] for one in needed.parts),
        whole=tuple(whole[one] for one in needed.whole) if every else (),
    )


def again(digest: str, needed: Wanted, documents: Iterable[msgspec.Struct]) -> OperatorTimes | None:
    """Return the times that a plan was made with, among documents that can have more by now."""
    # undivided operators can have been measured since
    needs = (needed, Wanted(needed.parts, ()))
    found = (one for one in documents if isinstance(one, OperatorTimes))
    every = (of(one, some) for one in found for some in needs)
    return next((one for one in every if one and files.digest(one) == digest), None)


def _computed() -> float:
    """Return seconds of cores of the ended child processes of this process."""
    spent = os.times()
    return spent.children_user + spent.children_system


def _lacking(found: Sequence[PartTime], needed: Sequence[Request]) -> list[Request]:
    known = by_request(found)
    return [one for one in needed if one not in known]


def _begun(path: Path, topology: Topology, cores: int) -> OperatorTimes:
    """The file's, as far as it is. Raises UsageError unless this machine is as its devices."""
    from dltune.system import topology as machine

    name, version = machine.local().name, framework()
    for kind in dict.fromkeys(device.kind for device in topology.devices):
        if kind != name:
            raise UsageError(
                f"the topology's devices are of the kind {kind!r}, but this machine is of the kind "
                f"{name!r}",
                remedy="measure on a machine of that kind, then pass the file with --times only",
            )
    if not path.exists():
        return OperatorTimes(TIMES_SCHEMA, name, _on_a_host(topology), cores, version, update(), ())
    found = load_times(path)
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


def _require_known(given: Given, needed: Sequence[Request]) -> None:
    """Raises UsageError when operators are of types for which JAX has nothing here."""
    unknown = dict.fromkeys(one.type for one in needed if not known(one))
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


@contextmanager
def device_cores(devices: int) -> Iterator[int]:
    """Yield the number of cores of one of so many devices of this machine, which have equal parts
    of its cores; processes started meanwhile run on these alone."""
    own = sorted(os.sched_getaffinity(0))
    portion = own[: max(1, len(own) // devices)]
    os.sched_setaffinity(0, portion)
    try:
        yield len(portion)
    finally:
        os.sched_setaffinity(0, own)


_BEGINS = {
    **{"Conv2D": "conv", "DepthwiseConv2dNative": "depthwise", "MatMul": "dense"},
    **{"MaxPool": "max_pool", "AvgPool": "avg_pool", "BatchMatMul": "dense", "Einsum": "einsum"},
    **{"Add": "add", "AddN": "add", "Sub": "add", "Mul": "multiply", "Mean": "mean"},
    **{"Sum": "mean", "Concat": "concat", "Gather": "embedding", "ResourceGather": "embedding"},
    **dict.fromkeys(("Softmax", "LogSoftmax"), "softmax"),
    **dict.fromkeys(
        ("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"), "loss"
    ),
    **{"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid"},
}
# the first of these that is there represents all that works number by number
_EACH = {
    **dict.fromkeys(("Erf", "Erfc", "GeluExact", "GeluApproximate"), "gelu"),
    **{"Tanh": "tanh", "Sigmoid": "sigmoid", "Swish": "sigmoid"},
    **dict.fromkeys(("Relu", "Relu6", "LeakyRelu"), "relu"),
    **dict.fromkeys(("Elu", "Selu", "Softplus", "Exp", "Log"), "tanh"),
}
_NORM = {"Rsqrt", "SquaredDifference"}
_SCALING = {"Add", "Mul", "Neg", "Sub"}
_NORMS = {"FusedBatchNorm", "FusedBatchNormEx"}
# of metrics and running statistics, and ops that hand values on
_ASIDE = {
    *("All", "Any", "ArgMax", "ArgMin", "AssignAddVariableOp", "AssignSubVariableOp"),
    *("AssignVariableOp", "Bitcast", "BitwiseAnd", "CheckNumerics", "InTopK", "LogicalAnd"),
    *("LogicalNot", "LogicalOr", "Max", "Mean", "Min", "OptionalFromValue", "Prod"),
    *("ReadVariableOp", "Retval", "Squeeze", "StopGradient", "Sum", "TopK", "UnaryOpsComposition"),
    *("AddN", "AccumulateN"),
}


def plain_request(request: Request) -> Request:
    """The same part, of a type that `operator_times.operator` knows where there is one.

    An operator of a profiled TensorFlow step becomes its equivalent in JAX. A profile's operator
    begins with an op, and has the kinds of ops that follow, in no order
    (`model/profile_operators.py`). Ops that work number by number are one pass, as XLA makes one of
    them: the function that takes the longest represents all. Ops that only move numbers are none,
    nor are metrics, for which no gradient waits. Ops that are not in the lists above are left
    unchanged, and refused where operators are timed.
    """
    first, *followers = request.type.split(" + ")
    head, *words = first.split()
    if head not in _BEGINS:
        return request
    told = dict(word.split("=", 1) for word in words if "=" in word)
    fused = told.get("fused_ops", "").strip("[]")
    follow = {*followers, *(fused.split(",") if fused else ())}
    if follow - ELEMENTWISE.keys() - MOVES - _NORMS - _ASIDE - _EACH.keys():
        return request
    begin = _BEGINS[head]
    if head == "Mean" and follow >= _NORM and (request.output,) == request.inputs:
        begin, follow = "layer_norm", follow - _NORM - _SCALING
    window = _window(words, told)
    if window is None and begin in ("conv", "depthwise", "max_pool", "avg_pool"):
        return request
    equation = [told.get("equation", "")] if begin == "einsum" else []
    return dataclasses.replace(request, type=" ".join([begin, *equation, *_after(follow, window)]))


def _window(words: list[str], told: dict[str, str]) -> str | None:
    """Its sides and its stride, where that is the same both ways."""
    strides = [*map(int, re.findall(r"\d+", told.get("strides", "")))]
    sides = [*map(int, re.findall(r"\d+", told.get("ksize", "")))][1:3]
    sides = sides or [int(n) for word in words if "=" not in word for n in word.split("x")]
    if len(strides) != 4 or len(sides) != 2 or strides[1] != strides[2]:
        return None
    return f"{sides[0]}x{sides[1]}/{strides[1]}"


def _after(follow: set[str], window: str | None) -> list[str]:
    words = [window] if window else []
    if "BiasAdd" in follow:
        words.append("bias")
    if follow & _NORMS or follow >= _NORM:
        words.append("batch_norm")
        follow = follow - _NORM - _SCALING
    if each := next((word for type, word in _EACH.items() if type in follow), None):
        words.append(each)
    elif follow & ELEMENTWISE.keys() - {"BiasAdd"}:
        words.append("scale")
    return words


_UPDATED = (1024, 1024)  # shape of the weights whose update is timed
_FLOAT = 4


def costs(
    graph: Operators, devices: int, space: Space, python: str = sys.executable
) -> MeasuredCosts:
    """All operators in all configurations of `space` on so many devices, each type and local shapes
    once, in one process with the threads that it is given. Raises UsageError as
    `operator_times.measured`.

    These are the costs of operators as JAX takes them on one device of this machine.
    """
    wanted = requests(graph, devices, space)
    return MeasuredCosts(graph, timed(wanted, python), update(python))


def timed(wanted: Sequence[Request], python: str = sys.executable) -> dict[Request, Times]:
    """Return the times of each part; for a profile's part, those of its equivalent in JAX. Raises
    UsageError as `operator_times.measured`."""
    plain = {one: plain_request(one) for one in wanted}
    distinct = [*dict.fromkeys(plain.values())]
    found = dict(zip(distinct, operator_times.measured(distinct, python), strict=True))
    return {one: found[own] for one, own in plain.items()}


def known(request: Request) -> bool:
    """True if parts of its type can be timed."""
    return unknown_word(plain_request(request)) is None


def update(python: str = sys.executable) -> float:
    """Seconds in which a byte of weights is updated: new ones are a sum of two arrays as large."""
    (found,) = operator_times.measured([Request("add", (_UPDATED, _UPDATED), _UPDATED)], python)
    return found.forward / (_FLOAT * _UPDATED[0] * _UPDATED[1])


def framework() -> str:
    """This Python's JAX and its version. Raises UsageError where there is none."""
    try:
        return f"JAX {metadata.version('jax')}"
    except metadata.PackageNotFoundError:
        raise UsageError(
            "timing operators requires JAX, which is not installed",
            remedy="pip install 'dltune[jax]'",
        ) from None
