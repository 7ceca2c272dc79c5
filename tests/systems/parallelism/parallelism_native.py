"""The native engine on a case of `parallelism_cases`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from parallelism_cases import Case
from parallelism_oracle import Id, Times

from dltune.systems.parallelism.model.engine import Engine, Event
from dltune.systems.parallelism.model.problem import Problem, Routes
from dltune.systems.parallelism.schemas.topology import Device, Kind, Topology


def engine(case: Case) -> Engine:
    """Times of links as the case has them, not those of a topology's paths."""
    devices, count = case.devices, len(case.devices.kinds)
    kinds = [Kind(str(n), 1.0, 1.0) for n in range(max(devices.kinds) + 1)]
    topology = Topology(
        "dltune.topology/1",
        "case",
        tuple(kinds),
        tuple(
            Device(str(n), str(kind), str(host))
            for n, (kind, host) in enumerate(zip(devices.kinds, devices.hosts, strict=True))
        ),
    )
    channels = max((max(row) for row in devices.channel), default=0) + 1
    channel = np.array(devices.channel, np.int32)
    problem = Problem(
        case.graph,
        topology,
        [[choice.configuration for choice in of] for of in case.catalogs],
        [np.array([choice.forward for choice in of], np.int64) for of in case.catalogs],
        [np.array([choice.backward for choice in of], np.int64) for of in case.catalogs],
        Routes(
            channel,
            np.array(devices.latency) / 1e9,
            np.array([[_seconds(one) for one in row] for row in devices.ns_per_byte]),
            tuple(str(n) for n in range(max(0, channels - count))),
        ),
        _seconds(devices.update_ns_per_byte),
        *(devices.all_reduce, devices.all_to_all),
    )
    return Engine(problem)


def _seconds(ns: float) -> float:
    """That the engine makes exactly these nanoseconds of."""
    near = ns / 1e9
    return next(s for s in (near, np.nextafter(near, 0), np.nextafter(near, 1)) if s * 1e9 == ns)


def by_name(events: Sequence[Event]) -> dict[Id, list[Times]]:
    """As the oracle has them by `gathered`."""
    kinds = {"operator": 0, "piece": 1, "synchronization": 2}
    named: dict[Id, list[Times]] = {}
    for one in events:
        name: Id = (kinds[one.kind], one.number, one.phase, one.place)
        if one.kind == "piece":
            name = (*name, one.part)
        elif one.kind == "synchronization":
            name = (2, one.number, one.place, one.phase)
        named.setdefault(name, []).append(Times(one.ready, one.start, one.end))
    return {name: sorted(all) for name, all in named.items()}


def gathered(times: Mapping[Id, Times]) -> dict[Id, list[Times]]:
    """The devices of one set and stage of weights together."""
    named: dict[Id, list[Times]] = {}
    for name, one in times.items():
        named.setdefault(name[:-1] if name[0] == 2 else name, []).append(one)
    return {name: sorted(all) for name, all in named.items()}
