"""Times of parts of a profiled step's operators on devices of the profiled machine."""

from __future__ import annotations

from collections import Counter

from dltune.schemas.machine import Machine
from dltune.systems.parallelism.model.costs import Part, roofline
from dltune.systems.parallelism.model.profiled import Measured, Seconds
from dltune.systems.parallelism.schemas.operators import Operator
from dltune.systems.parallelism.schemas.topology import Kind, Topology


class Timed:
    """Costs: measured for a kind of device that has the machine's name, modelled elsewhere.

    A part takes its share of the whole operator's time, plus the fixed time of every op. Devices of
    one host have its cores in equal parts: an op on several of them is as much slower than at its
    best as it has fewer, but never slower than alone.
    """

    def __init__(self, measured: Measured, machine: Machine, topology: Topology) -> None:
        operators = measured.operators.operators
        times = zip(measured.forward, measured.backward, strict=True)
        self._times = dict(zip((one.name for one in operators), times, strict=True))
        self._kind = machine.name
        hosts = Counter(one.host for one in topology.devices if one.kind == machine.name)
        self._slower = min(max(hosts.values(), default=1), len(machine.cores))

    def __call__(self, operator: Operator, part: Part, kind: Kind) -> tuple[float, float]:
        if kind.name != self._kind:
            return roofline(operator, part, kind)
        forward, backward = self._times[operator.name]
        return self._of(forward, part, kind), self._of(backward, part, kind)

    def _of(self, seconds: Seconds, part: Part, kind: Kind) -> float:
        whole = min(seconds.alone, seconds.best * self._slower)
        return kind.overhead + part.share * whole if whole else 0.0
