"""A section simulated again, as it is written: the activity of each device and each link over time.

A plan holds the strategy and not its timeline, which is a thousand times as large; the network and
the devices that it was made from are found by their digests.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from dltune.base.errors import UsageError
from dltune.systems.parallelism import times
from dltune.systems.parallelism.decide import decoded as read
from dltune.systems.parallelism.decide import posed, space
from dltune.systems.parallelism.inputs import Given, again
from dltune.systems.parallelism.model.engine import Engine, Event
from dltune.systems.parallelism.model.problem import Problem
from dltune.systems.parallelism.schemas.operators import OperatorTimes
from dltune.systems.parallelism.schemas.strategy import Parallelism
from dltune.systems.parallelism.schemas.topology import Topology
from dltune.views import Schedule, Slice, Track

MOST = 2_000_000  # tasks, of which a picture has a use


def replayed(section: Parallelism, documents: Sequence[msgspec.Struct]) -> Schedule:
    """Return the schedule. `documents`: those at hand. Raises UsageError when the network, the
    devices or the operators' times are not among them, nor published ones, when the plan does not
    fit them, or when a step has too many tasks; DltuneError when the simulator cannot be built."""
    found = again(section, documents)
    if found is None:
        raise UsageError(
            f"the documents of {section.network} and {section.topology} are missing, or have "
            "changed since the plan was made",
            remedy="pass the documents that the plan was made from, together with the plan",
        )
    given, topology = found
    if section.times:
        given = dataclasses.replace(given, times=_times(section, given, topology, documents))
    whole = posed(given, topology, section.mesh, section.consumer)
    strategy = read(section, whole)
    engine = Engine(whole)
    engine.simulate(strategy)
    tasks = engine.totals().tasks
    if tasks > MOST:
        raise UsageError(
            f"a step has {tasks:,} tasks, and at most {MOST:,} can be drawn", remedy=None
        )
    return _schedule(section, whole, engine.events())


def _times(
    section: Parallelism, given: Given, topology: Topology, documents: Sequence[msgspec.Struct]
) -> OperatorTimes:
    ways = space(topology, section.mesh, section.consumer)
    needed = times.wanted(given, topology, ways, runs=section.consumer is not None)
    found = times.again(section.times.digest, needed, documents) if section.times else None
    if found is None:
        raise UsageError(
            "the operator times that the plan was made with are missing",
            remedy="pass their document together with the plan",
        )
    return found


def _schedule(section: Parallelism, whole: Problem, events: Sequence[Event]) -> Schedule:
    names = _Names(whole)
    done: defaultdict[int, list[Slice]] = defaultdict(list)
    for event in events:
        name, kind = names.of(event)
        done[event.resource].append(Slice(name, kind, event.start, event.end, event.bytes))
    labels = (*section.devices, *whole.routes.channels)

    def track(place: int) -> Track:
        return Track(labels[place], tuple(sorted(done[place], key=lambda each: each.start)))

    return Schedule(
        f"simulated: {section.network} on {section.topology}",
        tuple(track(place) for place in range(whole.devices)),
        tuple(track(place) for place in sorted(done) if place >= whole.devices),
    )


class _Names:
    """Words of an event: its name, and the group that it shares with others."""

    def __init__(self, whole: Problem) -> None:
        self._operators = whole.graph.operators
        self._weights = whole.graph.weights
        self._edges = [
            (read.operator, number)
            for number, operator in enumerate(self._operators)
            for read in operator.inputs
        ]

    def of(self, event: Event) -> tuple[str, str]:
        match event.kind:
            case "operator":
                one = self._operators[event.number]
                way = "backward" if event.phase else "forward"
                return f"{one.name} {way}, part {event.place}", one.block or one.type
            case "piece":
                producer, consumer = self._edges[event.number]
                source, reader = self._operators[producer].name, self._operators[consumer].name
                if event.phase:
                    return f"gradient of {source} from {reader}", "gradients"
                return f"{source} to {reader}", "inputs"
            case "synchronization":
                name = self._weights[event.number].name
                if event.phase == 2:
                    return f"update of {name}", "updates"
                where = "between hosts" if event.phase else "within a host"
                return f"gradients of {name} summed {where}", "synchronization"
