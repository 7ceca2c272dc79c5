"""Devices and links under one graph, against a slow oracle that asks at every event."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dltune.simulate.engine import CoreSet, FifoWork, Graph, Link, Timeline
from dltune.simulate.step_graph import CSR


def replayed(inputs, where, cores, links, *, seconds, bytes_, priority=None) -> Timeline:
    """Each task has an op of its own, that keeps one core busy. `cores`: slots of each device."""
    successors = CSR.of(inputs).distinct().transposed(len(inputs))
    graph = Graph(successors, np.arange(len(inputs), dtype=np.int32), np.ones(len(inputs)))
    ops = [FifoWork(one, 1.0, 1) for one in seconds]
    return graph.on(
        [CoreSet(ops, cores=n, inter=n) for n in cores],
        links,
        np.array(where, np.int32),
        np.array(bytes_, np.float64),
        None if priority is None else np.array(priority, np.float64),
    )


@dataclass
class Flight:
    task: int
    left: float


def oracle(inputs, where, cores, links, *, seconds, bytes_, priority):
    """Start and end of each task, by looking at everything at each event."""
    count = len(inputs)
    start, end = [None] * count, [None] * count
    queues = [[] for _ in range(len(cores) + len(links))]
    flights = [[] for _ in queues]
    arrived: set[int] = set()
    now = 0.0

    def arrive(tasks) -> None:
        for task in tasks:
            if task not in arrived and all(end[other] is not None for other in inputs[task]):
                arrived.add(task)
                queues[where[task]].append(task)

    arrive(range(count))
    while True:
        for r, queue in enumerate(queues):
            link = links[r - len(cores)] if r >= len(cores) else None
            room = link.channels if link else cores[r]
            while queue and len(flights[r]) < room:
                task = queue[0]
                if link and link.by_priority:
                    task = min(queue, key=lambda t: (priority[t], queue.index(t)))
                queue.remove(task)
                took = link.latency + bytes_[task] / link.bandwidth if link else seconds[task]
                flights[r].append(Flight(task, took))
                start[task] = now
        rates = [
            1 / len(flying) if flying and r >= len(cores) else 1.0
            for r, flying in enumerate(flights)
        ]
        steps = [f.left / rate for flying, rate in zip(flights, rates, strict=True) for f in flying]
        if not steps:
            return start, end
        step = min(steps)
        now += step
        ended = []
        for r, flying in enumerate(flights):
            for flight in flying:
                flight.left -= step * rates[r]
            ended += [f.task for f in flying if f.left <= 1e-12]
            flights[r] = [f for f in flying if f.left > 1e-12]
        for task in ended:
            end[task] = now
        arrive(
            successor
            for task in sorted(ended, key=lambda task: start[task])
            for successor in range(count)
            if task in inputs[successor]
        )


@st.composite
def cases(draw):
    count = draw(st.integers(1, 9))
    inputs = [
        sorted(draw(st.sets(st.integers(0, task - 1), max_size=2))) if task else []
        for task in range(count)
    ]
    cores = draw(st.lists(st.integers(1, 2), min_size=1, max_size=2))
    links = draw(
        st.lists(
            st.builds(
                Link,
                bandwidth=st.sampled_from([64.0, 1000.0]),
                latency=st.sampled_from([0.0, 0.013]),
                channels=st.integers(1, 2),
                by_priority=st.booleans(),
            ),
            max_size=2,
        )
    )
    where = [draw(st.integers(0, len(cores) + len(links) - 1)) for _ in range(count)]
    # no two end at one moment by chance
    seconds = [0.1 + 0.01 * draw(st.integers(0, 50)) + task * 1e-5 for task in range(count)]
    bytes_ = [1.0 + draw(st.integers(0, 200)) + task * 1e-3 for task in range(count)]
    priority = [float(draw(st.integers(0, 4))) for _ in range(count)]
    return inputs, where, cores, links, seconds, bytes_, priority


@settings(max_examples=300, deadline=None)
@given(cases())
def test_the_oracle_s_timeline(case) -> None:
    inputs, where, cores, links, seconds, bytes_, priority = case
    about = {"seconds": seconds, "bytes_": bytes_, "priority": priority}
    found = replayed(inputs, where, cores, links, **about)
    start, end = oracle(inputs, where, cores, links, **about)
    assert found.start == pytest.approx(start, abs=1e-9)
    assert found.end == pytest.approx(end, abs=1e-9)
    assert found.makespan == pytest.approx(max(end), abs=1e-9)


def test_a_transfer_takes_its_latency_and_its_bytes() -> None:
    found = replayed(
        [[], [0], [1]], [1, 0, 1], [1], [Link(1000.0, 0.5)], seconds=[0, 2, 0], bytes_=[250, 0, 500]
    )
    assert found.end == pytest.approx([0.75, 2.75, 3.75])


def test_transfers_overlap_computing_and_their_order_matters() -> None:
    """The layout of TicTac's Fig. 1: an op needs the first parameter, another needs its result and
    the second. In that order of transfers computing hides one of them."""
    inputs = [[], [], [0], [1, 2]]
    where = [1, 1, 0, 0]
    about = {"seconds": [0, 0, 1, 1], "bytes_": [1, 1, 0, 0]}
    link = Link(1.0, by_priority=True)
    good = replayed(inputs, where, [1], [link], **about, priority=[0, 1, 0, 0])
    bad = replayed(inputs, where, [1], [link], **about, priority=[1, 0, 0, 0])
    assert (good.makespan, bad.makespan) == (3.0, 4.0)
    # first come, first served is the graph's order here
    assert replayed(inputs, where, [1], [Link(1.0)], **about).makespan == 3.0


def test_two_channels_share_a_link() -> None:
    about = {"seconds": [0, 0, 0], "bytes_": [10, 10, 10]}
    one = replayed([[], [], []], [1, 1, 1], [1], [Link(10.0)], **about)
    two = replayed([[], [], []], [1, 1, 1], [1], [Link(10.0, channels=2)], **about)
    assert one.end == [1.0, 2.0, 3.0]
    assert two.end == [2.0, 2.0, 3.0]


def test_a_cycle_is_told() -> None:
    with pytest.raises(ValueError, match="2 tasks wait for each other"):
        replayed([[1], [0]], [0, 0], [1], [], seconds=[1, 1], bytes_=[0, 0])
