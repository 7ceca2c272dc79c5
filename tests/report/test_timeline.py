"""Slices on rows, ops in flight, and memory, against slow and obvious ways to find them."""

from __future__ import annotations

import exhibits
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from served import MIB, SERVER, receive

from dltune.report.timeline import (
    Slice,
    Timeline,
    corunning,
    live_bytes,
    mean_corunning,
    measured,
    simulated,
)
from dltune.schemas.profile import Node
from dltune.simulate import engine
from dltune.simulate.workload import calibrated

spans = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda t: (t[0], t[0] + t[1])),
    max_size=25,
)


def timeline(found: list[tuple[int, int]], cores: list[tuple[int, ...]] | None = None) -> Timeline:
    starts, ends = ([time / 1e9 for time in times] for times in zip(*found, strict=True))
    step = exhibits.profile().steps[0]
    ops = msgspec.structs.replace(step, nodes=(node("Relu", (), 0),) * len(found))
    return simulated("x", engine.Timeline(starts, ends, max(ends), 0.0, cores or ()), ops)


@given(spans.filter(bool))
def test_rows_hold_every_slice_once_without_overlap(found: list[tuple[int, int]]) -> None:
    made = timeline(found)
    lasting = [(start, end) for start, end in found if end > start]
    assert sorted((s.start, s.end) for s in made.slices) == sorted(lasting)
    assert sorted(s.node for row in made.rows for s in row.slices) == sorted(
        s.node for s in made.slices
    )
    for row in made.rows:
        for before, after in zip(row.slices, row.slices[1:], strict=False):
            assert before.end <= after.start
    most = max((count for _, count in corunning(made.slices)), default=0)
    assert len(made.rows) == most


@given(spans)
def test_ops_in_flight(found: list[tuple[int, int]]) -> None:
    slices = [Slice(i, a, b) for i, (a, b) in enumerate(found) if b > a]

    def flying(moment: int) -> int:
        return sum(piece.start <= moment < piece.end for piece in slices)

    series = corunning(slices)
    assert series == [(moment, flying(moment)) for moment in sorted({m for m, _ in series})]
    events = [moment for piece in slices for moment in (piece.start, piece.end)]
    mean = sum(map(flying, events)) / len(events) if events else 0.0
    assert abs(mean_corunning(slices) - mean) < 1e-9


def test_mean_of_a_simulation_is_the_simulators_own() -> None:
    made, _ = calibrated(exhibits.profile())
    for inter in (1, 2, 4):
        found = made.uniform(2, inter).timelines[0]
        slices = simulated("x", found, made.steps[0]).slices
        assert abs(mean_corunning(slices) - found.corunning) < 0.02


def test_an_op_on_two_cores_is_in_both_rows_and_shared_cores_have_more() -> None:
    made = timeline(
        [(0, 10), (5, 9), (10, 12), (1, 2)], [(0, 1), (1,), (0,), ()]
    )  # the second runs on a core that is not free
    assert {row.label: [s.node for s in row.slices] for row in made.rows} == {
        "core 0": [0, 2],
        "core 1": [0],
        "core 1 (2)": [1],
        "no core 1": [3],
    }


def test_measured_times_are_the_profiles() -> None:
    step = exhibits.profile().steps[0]
    made = measured(step)
    assert made.slices
    for piece in made.slices:
        node = step.nodes[piece.node]
        assert node.start is not None
        assert node.end is not None
        assert abs(piece.end - piece.start - (node.end - node.start) * 1e9) <= 1
    bare = tuple(msgspec.structs.replace(node, start=None, end=None) for node in step.nodes)
    assert measured(msgspec.structs.replace(step, nodes=bare)).slices == ()


def test_what_comes_over_a_link_comes_one_after_the_other() -> None:
    """All are asked for at once; an op begins with the first."""
    came = [
        ("b", SERVER, 0.1e-3, 3e-3),
        ("a", SERVER, 0.0, 1e-3),
        ("late", SERVER, 4e-3, 5e-3),
        ("other", "/job:ps/task:1", 0.0, 2e-3),
    ]
    nodes = [
        msgspec.structs.replace(receive(name, MIB, sender), start=start, end=end)
        for name, sender, start, end in came
    ]
    nodes.append(msgspec.structs.replace(receive("a", 0), start=0.0, end=0.5e-3))
    nodes.append(msgspec.structs.replace(node("Relu", (1,), 0), start=1e-3, end=6e-3))
    step = msgspec.structs.replace(exhibits.profile().steps[0], nodes=tuple(nodes))
    made = measured(step)
    rows = {row.label: [(s.node, s.start // 1000, s.end // 1000) for s in row.slices]
            for row in (*made.links, *made.rows)}  # fmt: skip
    assert rows == {
        "from ps:0": [(1, 0, 1000), (0, 1000, 3000), (2, 4000, 5000)],
        "from ps:1": [(3, 0, 2000)],
        "lane 1": [(5, 1000, 6000)],
    }
    assert corunning(made.slices) == [(1_000_000, 1), (6_000_000, 0)]
    assert sorted(s.node for s in made.whole) == [0, 1, 2, 3, 5]


def node(kind: str, inputs: tuple[int, ...], size: int) -> Node:
    return Node(kind.lower(), kind, 0, inputs, (), size, 1.0)


def test_memory_lives_until_its_last_reader_has_ended() -> None:
    step = exhibits.profile().steps[0]
    nodes = (
        node("Conv2D", (), 100),
        node("Identity", (0,), 100),  # hands on the memory of the first
        node("Relu", (1,), 50),
        node("Sum", (2,), 4),
    )
    step = msgspec.structs.replace(step, nodes=nodes)
    slices = [Slice(0, 0, 10), Slice(1, 10, 11), Slice(2, 20, 30), Slice(3, 40, 50)]
    assert live_bytes(step, slices) == [(0, 100), (20, 150), (30, 50), (40, 54), (50, 0)]


def test_memory_of_views_in_a_circle_ends() -> None:
    step = exhibits.profile().steps[0]
    nodes = (node("Identity", (1,), 1), node("Identity", (0,), 1), node("Relu", (0,), 8))
    step = msgspec.structs.replace(step, nodes=nodes)
    assert live_bytes(step, [Slice(0, 0, 1), Slice(2, 1, 3)]) == [(1, 8), (3, 0)]
