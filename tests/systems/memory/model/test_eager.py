"""Steps as PyTorch calls them, against a machine that gives results up as planned, and names each
value by how it was computed: one that is computed otherwise is another."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.schemas.pytorch_step import Call, Calls, Storage
from dltune.simulate.step_graph import peak
from dltune.systems.memory.model.schedule import Step, lives
from dltune.systems.memory.model.selection import BudgetTooSmall, select
from dltune.systems.memory.pytorch import (
    AGAIN,
    FORWARD,
    Recomputed,
    eager,
    groups,
    hooks,
    recomputed,
)


@st.composite
def steps(draw: st.DrawFn) -> Calls:
    """Forward calls that read what earlier ones gave out, some of which write over it, and some of
    which give out two results; backward calls that read all of it, from the last to the first."""
    forward = draw(st.integers(2, 9))
    calls: list[Call] = []
    sizes: list[int] = []
    born: list[int] = []
    read_last: dict[int, int] = {}
    saved: dict[int, int] = {}  # by storage, the call before which it is
    for at in range(forward):
        reads = tuple(
            draw(st.lists(st.integers(0, len(sizes) - 1), max_size=2, unique=True)) if sizes else ()
        )
        read_last.update(dict.fromkeys(reads, at))
        writes = reads[:1] if reads and draw(st.integers(0, 2)) == 0 else ()
        gives = () if writes else range(len(sizes), len(sizes) + draw(st.integers(1, 2)))
        for storage in gives:
            sizes.append(draw(st.integers(1, 4)))
            born.append(at)
            saved[storage] = at + 1
        saved.update(dict.fromkeys(writes, at + 1))  # autograd saves what nobody writes any more
        calls.append(Call("aten.op", "forward", 1.0, 0, reads, tuple(gives), writes, True, False))
    order = list(reversed(range(len(sizes))))
    for storage in order:
        calls.append(Call("aten.back", "backward", 1.0, 0, (storage,), (), (), True, False))
    gone = {storage: forward + back for back, storage in enumerate(order)}
    storages = tuple(
        Storage(sizes[s], born[s], max(born[s], read_last.get(s, 0)), gone[s])
        for s in range(len(sizes))
    )
    return Calls(
        tuple(calls), storages, tuple(saved.items()), tuple((s, gone[s]) for s in order), True
    )


def ran(calls: Calls, plan: Sequence[Recomputed]) -> tuple[list[object], int]:
    """What the backward pass reads, and how often groups ran again."""
    value: dict[int, object] = {}
    early: dict[int, object] = {}  # saved while a call of its group was still to come
    place = {s: (one, slot) for one in plan for slot, s in enumerate(one.group.storages)}
    left = {id(one): list(one.reads[0]) for one in plan}
    runs = {id(one): 0 for one in plan}

    def call(at: int, there: dict[int, object]) -> None:
        one = calls.calls[at]
        made = at, tuple(there[s] for s in one.reads)
        there.update(dict.fromkeys((*one.gives, *one.writes), made))

    def read(storage: int) -> object:
        if storage not in place:
            return value[storage]
        one, slot = place[storage]
        if storage not in value:
            own = set(one.group.storages)
            members = [calls.calls[at] for at in one.group.calls]
            there = {s: read(s) for member in members for s in member.reads if s not in own}
            for at in one.group.calls:
                call(at, there)
            value.update({s: there[s] for s in own})
            runs[id(one)] += 1
            left[id(one)] = list(one.reads[runs[id(one)]])
        found = value[storage]
        left[id(one)][slot] -= 1
        forget()
        return found

    def forget() -> None:
        for storage, (one, slot) in place.items():
            if left[id(one)][slot] <= 0:
                value.pop(storage, None)

    seen = []
    for at, one in enumerate(calls.calls):
        if one.phase == "forward":
            call(at, value)
            for storage, when in calls.saved:
                if when == at + 1 and storage in place and at < place[storage][0].group.last:
                    early[storage] = value[storage]
            continue
        if not seen:
            forget()
        saved = one.reads[0]
        seen.append(early[saved] if saved in early else read(saved))
    return seen, sum(runs.values())


@given(steps())
def test_without_a_plan_the_peak_is_that_of_the_calls(calls):
    found = eager(calls)
    most, _, _ = peak(lives(found.step.graph, [Step(node) for node in found.step.order]))
    assert most + found.live == max(calls.levels)


@given(steps(), st.floats(0.0, 1.0))
def test_what_is_computed_again_is_what_was_given_up(calls, part):
    found = eager(calls)
    step = found.step
    budget = int(part * max(calls.levels))
    try:
        chosen = select(step.graph, step.order, step.seconds, step.again, budget)
    except BudgetTooSmall as error:
        chosen = select(step.graph, step.order, step.seconds, step.again, error.least)
    run = step.run(chosen.steps)
    plan = recomputed(found, run)
    plain, none = ran(calls, [])
    seen, again = ran(calls, plan)
    assert seen == plain
    assert (none, again) == (0, len(run) - len(step.order))
    # as they are read is how they are read
    assert list(step.run(run)) == list(run)


def test_what_is_in_hand_does_not_run_again_for_what_is_computed_from_it():
    """As in DenseNet, where a layer's output is joined to its input."""
    calls = [
        Call("aten.first", "forward", 1.0, 0, (), (0,), (), True, False),
        Call("aten.layer", "forward", 1.0, 0, (0,), (1,), (), True, False),
        Call("aten.cat", "forward", 1.0, 0, (0, 1), (2,), (), True, False),
        Call("aten.back", "backward", 1.0, 0, (2,), (), (), True, False),
    ]
    storages = [Storage(4, 0, 2, 2), Storage(4, 1, 2, 2), Storage(8, 2, 2, 3)]
    found = eager(Calls(tuple(calls), tuple(storages), ((2, 3),), ((2, 3),), True))
    first, layer, joined = sorted(found.groups)
    at = next(node for node in found.step.order if found.readers.get(node))
    before, after = found.step.order[:at], found.step.order[at:]
    run = found.step.run([Step(one) for one in (*before, first, layer, first, joined, *after)])
    assert [one.node for one in run] == [*before, first, layer, joined, *after]
    assert [one.reads for one in recomputed(found, run)] == [[[0], [2]], [[0], [1]], [[0], [1]]]


def test_a_chain_of_any_length_is_computed_again_for_its_end():
    count = 2000
    calls = [
        Call("aten.tanh", "forward", 1.0, 0, (at - 1,) if at else (), (at,), (), True, False)
        for at in range(count)
    ]
    calls.append(Call("aten.back", "backward", 1.0, 0, (count - 1,), (), (), True, False))
    storages = [Storage(4, at, min(at + 1, count - 1), count) for at in range(count)]
    last = ((count - 1, count),)
    found = eager(Calls(tuple(calls), tuple(storages), last, last, True))
    at = next(node for node in found.step.order if found.readers.get(node))
    before, after = found.step.order[:at], found.step.order[at:]
    run = found.step.run([Step(one) for one in (*before, *sorted(found.groups), *after)])
    assert [one.node for one in run] == [*before, *sorted(found.groups), *after]


def test_who_writes_into_a_result_is_one_with_its_call():
    """As a batch norm and its ReLU in place, with which what others read between is not again."""
    gives = [Storage(4, 0, 3, 5), Storage(4, 1, 3, 4)]
    calls = [
        Call("aten.first", "forward", 1.0, 0, (), (0,), (), True, False),
        Call("aten.norm", "forward", 1.0, 0, (0,), (1,), (), True, False),
        Call("aten.relu_", "forward", 1.0, 0, (1,), (), (1,), True, False),
        Call("aten.mean", "forward", 1.0, 0, (1,), (), (), True, False),
    ]
    made = groups(Calls(tuple(calls), tuple(gives), (), (), True))
    assert [one.calls for one in made if one.again] == [[0], [1, 2]]
    between = Call("aten.mean", "forward", 1.0, 0, (1,), (), (), True, False)
    made = groups(Calls((*calls[:2], between, *calls[2:]), tuple(gives), (), (), True))
    assert [one.calls for one in made if one.again] == [[0]]
    aside = Call("aten.zero_", "aside", 1.0, 0, (1,), (), (1,), True, False)
    back = Call("aten.back", "backward", 1.0, 0, (1,), (), (), True, False)
    made = groups(Calls((*calls, aside, back), tuple(gives), (), (), True))
    assert [one.calls for one in made if one.again] == [[0]]


def test_dltune_s_own_work_counts_calls_that_go_through_python():
    """All of the forward pass, and those that run again; nothing where nothing is given up."""
    forward = 4
    calls = [
        Call("aten.op", "forward", 1.0, 0, (at - 1,) if at else (), (at,), (), True, False)
        for at in range(forward)
    ]
    calls += [
        Call("aten.back", "backward", 1.0, 0, (at,), (), (), True, False)
        for at in reversed(range(forward))
    ]
    storages = [Storage(4, at, at + 1, 2 * forward - 1 - at) for at in range(forward)]
    read = tuple((at, 2 * forward - 1 - at) for at in range(forward))
    saved = tuple((at, at + 1) for at in range(forward))
    found = eager(Calls(tuple(calls), tuple(storages), saved, read, True, crossing=1e-3))
    plain = [Step(node) for node in found.step.order]
    assert hooks(found, plain) == 0.0
    (first, *_) = found.groups
    twice = [*plain, Step(first), Step(first)]
    assert hooks(found, twice) == pytest.approx((FORWARD * forward + AGAIN * 2) * 1e-3)
    unknown = eager(Calls(tuple(calls), tuple(storages), saved, read, True))
    assert hooks(unknown, twice) == 0.0
