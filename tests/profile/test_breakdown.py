"""Where a step's wall time goes."""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from told import graph

from dltune.job import protocol
from dltune.job.record import NANOSECOND
from dltune.profile.breakdown import PARTS, parts
from dltune.schemas import profile as doc
from dltune.schemas.graph import kind

TYPES = ("Conv2D", "IteratorGetNext", "CollectiveReduceV2", "StatefulPartitionedCall")
OP, INPUT, COMMUNICATION, CALL = range(4)
GRAPHS = {id: graph(id, TYPES, f"graph{id}") for id in range(3)}


def execution(
    graph: int,
    start: int,
    events: list[tuple[int, int, int]],
    *,
    number: int = 0,
    waited: int = 0,
) -> protocol.Execution:
    """Events are (node, start, end) in nanoseconds since `start`."""
    told = [(node, 0, -1 if node else 0, 0, begin, end, "1") for node, begin, end in events]
    return protocol.Execution(graph, number, 1, start, 0, 0, 0, told, waited)


def nanoseconds(found) -> dict[str, int]:
    """The parts that are not 0."""
    return {part.name: round(part.seconds / NANOSECOND) for part in found if part.seconds}


def one(*executions: protocol.Execution, others=()) -> dict[str, int]:
    return nanoseconds(parts(GRAPHS, {0: executions}, others)[0])


def repeated(events, wall: int, **changes) -> dict[str, int]:
    return one(*(execution(0, i * wall, events, number=i, **changes) for i in range(4)))


@pytest.mark.parametrize(
    ("node_type", "expected"),
    [
        ("Conv2D", "ops"),
        ("_FusedConv2D", "ops"),
        ("IteratorGetNext", "input"),
        ("IteratorGetNextAsOptional", "input"),
        ("IteratorGetNextSync", "input"),
        ("QueueDequeueManyV2", "input"),
        ("MapUnstage", "input"),
        ("CollectiveReduceV2", "communication"),
        ("HorovodAllreduce", "communication"),
        ("NcclAllReduce", "communication"),
        ("_HostRecv", "communication"),
        ("_Recv", "communication"),
        ("RecvTensor", "communication"),
        ("StatefulPartitionedCall", "call"),
        ("PartitionedCall", "call"),
        ("While", "call"),
        ("StatelessIf", "call"),
        ("Where", "ops"),
        ("WholeFileReader", "ops"),
        ("IfElse", "ops"),
    ],
)
def test_what_an_op_does_is_told_by_its_type(node_type, expected):
    assert kind(node_type) == expected


def test_each_part_has_its_time():
    events = [(INPUT, 0, 10), (OP, 12, 40), (COMMUNICATION, 40, 45), (OP, 46, 50)]
    assert repeated(events, 60) == {
        "ops": 32,
        "executor": 3,
        "input": 10,
        "communication": 5,
        "python": 10,
    }


def test_what_work_hides_costs_nothing():
    assert repeated([(OP, 0, 30), (INPUT, 5, 20), (COMMUNICATION, 10, 40)], 40) == {
        "ops": 30,
        "communication": 10,
    }


def test_a_receive_that_is_posted_early_does_not_hide_the_input():
    assert repeated([(COMMUNICATION, 0, 40), (INPUT, 0, 30), (OP, 40, 50)], 50) == {
        "input": 30,
        "communication": 10,
        "ops": 10,
    }


def test_a_sum_costs_what_the_step_waits_for_it():
    """Not what lies between other ops meanwhile, which is Python's."""
    types = ["aten::mm", doc.ALLREDUCE, "aten::mm", doc.ALLREDUCE, "aten::add_"]
    eager = protocol.Graph(
        0, "a", "", "", False, [protocol.Node(t, t, [], [], False) for t in types], True
    )
    events = [(0, 0, 10), (1, 10, 12), (2, 20, 30), (3, 35, 36), (4, 60, 70)]
    seen = [execution(0, i * 100, events, number=i) for i in range(4)]
    (found,) = parts({0: eager}, {0: seen}).values()
    # behind the first sum 8, which nothing is waited for, and behind the second 24
    assert nanoseconds(found) == {"ops": 30, "communication": 35, "python": 35}


def test_an_op_in_a_loop_counts_each_time():
    loop = [(OP, i * 10, i * 10 + 6) for i in range(5)]  # steps_per_execution, for one
    assert repeated(loop, 50) == {"ops": 30, "executor": 16, "python": 4}


def test_eager_input_is_taken_from_what_python_would_have():
    turns = [execution(0, i * 100, [(OP, 0, 40)], number=i, waited=1000 + i * 25) for i in range(5)]
    assert one(*turns) == {"ops": 40, "input": 25, "python": 35}


def test_eager_input_beside_the_step_is_no_more_than_what_is_left():
    turns = [execution(0, i * 100, [(OP, 0, 40)], number=i, waited=i * 90) for i in range(5)]
    assert one(*turns) == {"ops": 40, "input": 60}


def test_two_steps_in_a_round_are_each_charged_for_their_own():
    first = [execution(0, i * 100, [(OP, 0, 30)], number=i) for i in range(5)]
    second = [execution(1, i * 100 + 40, [(OP, 0, 20)], number=i) for i in range(5)]
    found = parts(GRAPHS, {0: first, 1: second})
    assert nanoseconds(found[0]) == {"ops": 30, "python": 10}
    assert nanoseconds(found[1]) == {"ops": 20, "python": 40}


def test_a_step_that_runs_often_counts_only_where_the_rarer_one_is_known_too():
    """Of each step the latest executions are kept, so the rarer one reaches further back."""
    rare = [execution(0, i * 100, [(OP, 0, 10)], number=i) for i in range(8)]
    often = [
        execution(1, i * 100 + 20 * (j + 1), [(OP, 0, 10)], number=4 * i + j)
        for i in range(8)
        for j in range(4)
    ][-12:]
    found = parts(GRAPHS, {0: rare, 1: often})
    assert nanoseconds(found[0]) == {"ops": 10, "python": 10}
    assert nanoseconds(found[1]) == {"ops": 10, "python": 10}


def test_executions_that_overlap_are_charged_once():
    turns = [execution(0, i * 30, [(OP, 0, 25), (OP, 28, 50)], number=i) for i in range(9)]
    assert one(*turns) == {"ops": 27, "executor": 3}


def test_a_turn_in_which_an_execution_was_lost_does_not_count():
    numbers = [0, 1, 3, 5]
    turns = [execution(0, n * 100, [(OP, 0, 40)], number=n) for n in numbers]
    assert one(*turns) == {"ops": 40, "python": 60}


def test_the_lost_execution_of_another_step_counts_too():
    first = [execution(0, i * 100, [(OP, 0, 30)], number=i) for i in range(6)]
    second = [execution(1, i * 100 + 40, [(OP, 0, 20)], number=i) for i in (0, 1, 3, 4)]
    found = parts(GRAPHS, {0: first, 1: second})
    assert nanoseconds(found[0]) == {"ops": 30, "python": 10}
    assert nanoseconds(found[1]) == {"ops": 20, "python": 40}


def test_an_execution_whose_events_were_lost_does_not_count():
    turns = [execution(0, i * 100, [(OP, 0, 40)] if i != 1 else [], number=i) for i in range(3)]
    assert one(*turns) == {"ops": 40, "python": 60}


def test_an_epochs_end_does_not_count():
    starts = [0, 100, 200, 300, 9000, 9100, 9200, 9300]
    turns = [execution(0, at, [(OP, 0, 40)], number=i) for i, at in enumerate(starts)]
    assert one(*turns) == {"ops": 40, "python": 60}


def test_a_single_execution_stands_alone():
    assert one(execution(0, 7, [(OP, 0, 10), (OP, 15, 20)])) == {"ops": 15, "executor": 5}


def test_without_executions_or_events_there_are_no_parts():
    assert parts(GRAPHS, {0: []}) == {0: ()}
    assert parts(GRAPHS, {}) == {}
    assert parts(GRAPHS, {0: [execution(0, i, [], number=i) for i in range(4)]}) == {0: ()}


def test_steps_without_length_have_no_seconds():
    assert one(*(execution(0, 5, [(OP, 0, 0)], number=i) for i in range(3))) == {}


def test_a_call_whose_body_was_not_told_is_busy():
    assert repeated([(CALL, 0, 30)], 40) == {"ops": 30, "python": 10}


def test_a_call_is_as_busy_as_its_body():
    turns = [execution(0, i * 100, [(CALL, 0, 50), (OP, 50, 60)], number=i) for i in range(5)]
    body = [execution(1, i * 100 + 5, [(INPUT, 0, 20), (CALL, 20, 40)], number=i) for i in range(5)]
    inner = [execution(2, i * 100 + 30, [(OP, 0, 10)], number=i) for i in range(5)]
    body.insert(0, execution(1, -500, [(OP, 0, 400)]))  # in a warm-up that is known no longer
    assert one(*turns, others=[*body, *inner]) == {
        "input": 20,
        "ops": 20,
        "executor": 20,
        "python": 40,
    }


def test_a_graph_that_also_runs_beside_the_step_is_no_body():
    turns = [execution(0, i * 100, [(CALL, 0, 50)], number=i) for i in range(5)]
    pipeline = [execution(1, i * 70 + 5, [(OP, 0, 20)], number=i) for i in range(5)]
    assert one(*turns, others=pipeline) == {"ops": 50, "python": 50}


# properties

EVENT = st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 20)).map(
    lambda e: (e[0], e[1], e[1] + e[2])
)
TURN = st.tuples(
    st.integers(0, 1), st.integers(0, 60), st.lists(EVENT, max_size=6), st.integers(0, 40)
)


def made(turns) -> dict[int, list[protocol.Execution]]:
    """Two steps; each execution begins some time after the one before it, done or not."""
    steps: dict[int, list[protocol.Execution]] = {0: [], 1: []}
    now = waited = 0
    for step, pause, events, eager in turns:
        now += pause
        waited += eager
        steps[step].append(execution(step, now, events, number=len(steps[step]), waited=waited))
    return steps


def ticks(steps) -> dict[int, list[Counter]]:
    """The oracle: look at every nanosecond, one by one."""
    ordered = sorted(
        ((e.start, step, e) for step, executions in steps.items() for e in executions),
        key=lambda one: one[:2],
    )
    since = max(executions[0].start for executions in steps.values() if executions)
    found: dict[int, list[Counter]] = {step: [] for step in steps}
    for (start, step, this), (end, _, following) in pairwise(ordered):
        if not this.events or start < since:
            continue
        tally: Counter = Counter()
        for now in range(start, end):
            kinds = {
                kind(TYPES[event[0]])
                for _, _, e in ordered
                for event in e.events
                if e.start + event[4] <= now < e.start + event[5]
            }
            within = any(
                e.start <= now < e.start + max(event[5] for event in e.events)
                for _, _, e in ordered
                if e.events
            )
            if kinds & {"ops", "call"}:
                tally["ops"] += 1
            elif "input" in kinds:
                tally["input"] += 1
            elif "communication" in kinds:
                tally["communication"] += 1
            else:
                tally["executor" if within else "python"] += 1
        for _ in range(following.waited - this.waited):
            if tally["python"]:
                tally["python"] -= 1
                tally["input"] += 1
        found[step].append(tally)
    return found


@given(st.lists(TURN, min_size=2, max_size=8))
def test_as_seen_at_every_nanosecond(turns):
    steps = made(turns)
    found = parts(GRAPHS, steps)
    for step, tallies in ticks(steps).items():
        if not tallies:
            continue
        assert tuple(part.name for part in found[step]) == PARTS
        assert all(part.seconds >= 0 for part in found[step])
        wall = statistics.median(tally.total() for tally in tallies)
        assert sum(p.seconds for p in found[step]) == pytest.approx(wall * NANOSECOND, abs=1e-18)
        ranked = sorted(tallies, key=Counter.total)
        middle = ranked[len(ranked) // 4 : len(ranked) - len(ranked) // 4]
        total = sum(tally.total() for tally in middle)
        for part in found[step]:
            share = sum(tally[part.name] for tally in middle) / total if total else 0
            assert part.seconds == pytest.approx(share * wall * NANOSECOND, abs=1e-18)


@given(st.lists(TURN, min_size=2, max_size=8), st.data())
def test_an_op_in_two_halves_is_the_same(turns, data):
    halves = []
    for step, pause, events, eager in turns:
        split = []
        for node, start, end in events:
            at = data.draw(st.integers(start, end))
            split += [(node, start, at), (node, at, end)]
        halves.append((step, pause, data.draw(st.permutations(split)), eager))
    assert parts(GRAPHS, made(turns)) == parts(GRAPHS, made(halves))
