"""Hosts that share links, against a slow oracle."""

from __future__ import annotations

import fluid
import numpy as np
import pytest
from fluid import Channel
from hypothesis import given, settings
from hypothesis import strategies as st

from dltune.simulate.engine import CoreSet, FifoWork, Graph, Network, Timeline
from dltune.simulate.step_graph import CSR


def across(successors, where, seconds, priority=None) -> Timeline:
    """Each task on a core of its own number, or on a channel."""
    cores = 1 + max((one for one in where if not isinstance(one, Channel)), default=-1)
    channels = list(dict.fromkeys(one for one in where if isinstance(one, Channel)))
    places = [cores + channels.index(w) if isinstance(w, Channel) else w for w in where]
    op = [-1 if isinstance(one, Channel) else task for task, one in enumerate(where)]
    graph = Graph(CSR.of(successors), np.array(op, np.int32), np.ones(len(where)))
    ops = [FifoWork(one, 1.0, 1) for one in seconds]
    return graph.across(
        [CoreSet(ops, cores=1, inter=1)] * cores,
        Network(
            np.array([one.sender for one in channels], np.int32),
            np.array([one.receiver for one in channels], np.int32),
        ),
        np.array(places, np.int32),
        np.array(seconds, np.float64),
        np.array(priority or [0.0] * len(where)),
    )


@st.composite
def cases(draw):
    count = draw(st.integers(1, 14))
    successors = [
        sorted(draw(st.sets(st.integers(task + 1, count - 1), max_size=2)))
        if task < count - 1
        else []
        for task in range(count)
    ]
    places = st.one_of(st.integers(0, 2), st.builds(Channel, st.integers(0, 2), st.integers(0, 2)))
    where = [draw(places) for _ in range(count)]
    # no two end at one moment by chance
    seconds = [1.0 + draw(st.integers(0, 5)) + task * 1e-3 for task in range(count)]
    priority = [float(draw(st.integers(0, 4))) for _ in range(count)]
    return successors, where, seconds, priority


@given(cases())
@settings(max_examples=200)
def test_the_oracles_timeline(case) -> None:
    found = across(*case)
    assert found.end == pytest.approx(fluid.replayed(*case), abs=1e-9)


def test_two_workers_of_one_server_share_its_link() -> None:
    one, other = Channel(0, 1), Channel(0, 2)
    assert across([[], [], []], [one, other, other], [1, 1, 1]).end == pytest.approx([2, 2, 3])


def test_links_are_full_duplex() -> None:
    assert across([[], []], [Channel(0, 1), Channel(1, 0)], [1, 1]).end == [1, 1]


def test_shares_are_max_min_fair() -> None:
    """Two channels leave each of host 0 and host 1, one to host 2 of both: it has three to share,
    and what that leaves of host 0's link is the other channel's."""
    where = [Channel(0, 2), Channel(1, 2), Channel(1, 2), Channel(0, 3), Channel(4, 2)]
    found = across([[]] * 5, where, [1, 1, 1, 1, 1])
    # thirds for three into host 2, two thirds for the one beside
    assert found.end[3] == pytest.approx(1.5)
    assert found.end[:2] == pytest.approx([3, 3])


def test_the_lowest_priority_number_that_waits_is_next() -> None:
    """The first is under way when the second, which is more urgent, has come."""
    where = [Channel(0, 1), 0, Channel(0, 1), Channel(0, 1)]
    found = across([[], [3], [], []], where, [2, 1, 5, 1], [0, 0, 2, 1])
    assert found.end == pytest.approx([2, 1, 8, 3])
