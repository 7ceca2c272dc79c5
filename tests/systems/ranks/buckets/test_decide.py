"""Buckets: against every order of the gradients and every way to cut it, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.schemas.profile import (
    ALLREDUCE,
    Collective,
    Framework,
    Node,
    Op,
    Profile,
    Samples,
)
from dltune.systems.ranks.buckets.decide import ALIKE, WORTH, decide
from dltune.systems.ranks.buckets.section import Buckets, Model, filled

LATENCY, PER_BYTE = 1e-3, 1e-6
COMPUTED = "torch::distributed::reducer::mul_out"
MACHINE = synthetic.machine(2)


def profile(
    elements: Sequence[int],
    ready: Sequence[float],
    buckets: Sequence[int],
    *,
    tail: float = 0.0,
    version: str = "2.13.0+cpu",
    transfers: Sequence[int] = (1000, 4000),
) -> Profile:
    """Of a rank whose gradients have so many elements, are there at these moments, and travel in
    buckets of so many gradients; its optimizer takes `tail` seconds after the last has come."""
    ops = [
        Op(f"{COMPUTED}(float[{n}])", COMPUTED, (f"float[{n}]",), 1, 0, 1e-6, ()) for n in elements
    ]
    ops.append(Op(f"{ALLREDUCE}(){{tensors=1}}", ALLREDUCE, (), len(buckets), 0, 1e-6, ()))
    nodes: list[Node] = []
    end, place = 0.0, 0
    for count in buckets:
        for index in range(place, place + count):
            nodes.append(node(COMPUTED, index, 0, ready[index]))
        place += count
        bytes = 4 * sum(elements[place - count : place])
        nodes.append(node(ALLREDUCE, len(elements), bytes, ready[place - 1]))
        end = max(end, ready[place - 1]) + LATENCY + PER_BYTE * bytes
    made = synthetic.profile(MACHINE, ops, {"step": nodes}, span=max(end, max(ready)) + tail)
    took = (LATENCY + PER_BYTE * bytes for bytes in transfers)
    collectives = tuple(
        Collective(0, bytes, Samples(9, seconds, 2 * seconds, 0.5))
        for bytes, seconds in zip(transfers, took, strict=True)
    )
    step = msgspec.structs.replace(made.steps[0], collectives=collectives)
    framework = Framework("pytorch", version, "", "3.11")
    return msgspec.structs.replace(made, steps=(step,), framework=framework)


def node(kind: str, op: int, bytes: int, end: float) -> Node:
    return Node(f"backward/{kind}_1", kind, op, (), (), bytes, 1.0, end, end)


def shortest(elements: Sequence[int], ready: Sequence[float]) -> float:
    """Seconds until all has come, in the best order and the best cuts of it."""
    found = []
    for order in itertools.permutations(range(len(elements))):
        for cuts in itertools.product((False, True), repeat=len(order) - 1):
            now, bucket = 0.0, [order[0]]
            for other, cut in zip((*order[1:], None), (*cuts, True), strict=True):
                if cut:
                    now = max(now, *(ready[k] for k in bucket)) + LATENCY
                    now += PER_BYTE * 4 * sum(elements[k] for k in bucket)
                    bucket = []
                if other is not None:
                    bucket.append(other)
            found.append(now)
    return max(min(found), max(ready))


@settings(max_examples=60)
@given(st.data())
def test_no_order_and_no_cuts_are_better(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 5))
    elements = data.draw(st.lists(st.integers(1, 2000), min_size=count, max_size=count))
    gaps = data.draw(st.lists(st.floats(0, 0.01), min_size=count, max_size=count))
    ready = list(itertools.accumulate(gaps))
    alone = data.draw(st.integers(0, count - 1))
    buckets = [alone, count - alone] if alone else [count]
    tail = data.draw(st.floats(0, 0.01))
    (model,) = decide(profile(elements, ready, buckets, tail=tail)).section.models
    least = shortest(elements, ready) + tail
    assert model.predicted >= least - 1e-9
    assert model.predicted <= model.seconds
    assert model.predicted <= least * (1 + ALIKE) / (1 - WORTH) + 1e-9
    assert sum(model.planned) == 4 * sum(elements)
    if not model.limits:
        assert model.planned == model.before


def test_the_last_gradients_travel_when_they_are_there() -> None:
    """Four of 4 ms each, 4 ms apart: in one bucket after 33 ms, in four after 24."""
    found = decide(profile([1000] * 4, [4e-3, 8e-3, 12e-3, 16e-3], [4])).section.models[0]
    assert found.seconds == pytest.approx(33e-3)
    assert found.limits == found.planned == (4000, 4000, 4000, 4000)
    assert found.predicted == pytest.approx(24e-3)


def test_buckets_that_bring_nothing_stay_as_they_are() -> None:
    decided = decide(profile([10, 10], [1.0, 2.0], [2]))
    (model,) = decided.section.models
    assert model.limits == ()
    assert model.predicted == model.seconds
    assert any("keeps its buckets" in reason for reason in decided.reasons)


def test_an_older_pytorch_gets_one_size_for_all() -> None:
    ready = [4e-3, 8e-3, 12e-3, 16e-3]
    decided = decide(profile([3000, 1000, 1000, 1000], ready, [4], version="2.6.0+cpu"))
    (model,) = decided.section.models
    assert len(model.limits) == 1
    assert model.planned == filled(model.gradients, model.limits)
    assert model.predicted < model.seconds
    assert "PyTorch 2.6.0+cpu supports only one size for all buckets" in decided.reasons


def test_transfers_of_one_size_tell_no_latency() -> None:
    decided = decide(profile([1000] * 4, [4e-3, 8e-3, 12e-3, 16e-3], [4], transfers=[16000]))
    assert decided.section.latency == 3e-4
    assert "300 us (assumed minimum) plus" in decided.reasons[0]


@pytest.mark.parametrize("transfers", [[1000, 2000], [4000, 1000]])
def test_what_transfers_take_is_never_negative(transfers: list[int]) -> None:
    made = profile([1000], [1e-3], [1], transfers=transfers)
    step = made.steps[0]
    took = [Samples(9, 1e-3, 1e-3, 0.0), Samples(9, 9e-3, 9e-3, 0.0)]
    odd = tuple(
        msgspec.structs.replace(one, took=seconds)
        for one, seconds in zip(step.collectives, took, strict=True)
    )
    steps = (msgspec.structs.replace(step, collectives=odd),)
    section = decide(msgspec.structs.replace(made, steps=steps)).section
    assert section.latency >= 0
    assert section.per_byte >= 0


def test_what_cannot_be_planned_is_said() -> None:
    made = profile([1000] * 4, [1e-3, 2e-3, 3e-3, 4e-3], [2, 2])
    for change, words in (
        ({"framework": Framework("tensorflow", "2.21.0", "", "3.11")}, "dltune plan allreduce"),
        ({"steps": (msgspec.structs.replace(made.steps[0], nodes=()),)}, "torchrun"),
        ({"steps": (msgspec.structs.replace(made.steps[0], collectives=()),)}, "no transfers"),
    ):
        with pytest.raises(UsageError) as raised:
            decide(msgspec.structs.replace(made, **change))
        assert words in f"{raised.value} {raised.value.remedy}"


def test_more_buckets_than_a_step_has_time_for() -> None:
    """Where the latency that is assumed is more than one had."""
    made = profile([1] * 60, [k * 1e-5 for k in range(60)], [1] * 60, transfers=[4])
    step = made.steps[0]
    quick = (Collective(0, 4, Samples(9, 60e-6, 60e-6, 0.0)),)
    wall = Samples(10, 8e-3, 8e-3, 0.0)
    steps = (msgspec.structs.replace(step, collectives=quick, wall=wall),)
    section = decide(msgspec.structs.replace(made, steps=steps)).section
    assert section.latency == 0
    assert struct_faults("buckets", section) == []


def test_gradients_that_travel_after_each_backward_pass_are_refused() -> None:
    made = profile([1000, 500], [1e-3, 2e-3], [2])
    once = made.steps[0].nodes
    between = msgspec.structs.replace(once[0], name="forward/aten::mm_2", type="aten::mm")
    steps = (msgspec.structs.replace(made.steps[0], nodes=(*once, between, *once)),)
    with pytest.raises(UsageError, match="several backward passes") as raised:
        decide(msgspec.structs.replace(made, steps=steps))
    assert "no_sync" in str(raised.value.remedy)


def test_gradients_of_several_types_are_refused() -> None:
    made = profile([1000, 500], [1e-3, 2e-3], [2])
    halves = msgspec.structs.replace(made.ops[1], key=f"{COMPUTED}(bfloat16[1000])")
    changed = msgspec.structs.replace(made, ops=(made.ops[0], halves, *made.ops[2:]))
    with pytest.raises(UsageError, match="bfloat16 and float"):
        decide(changed)


def test_a_model_that_looks_for_unused_parameters_is_refused() -> None:
    made = profile([1000, 500], [1e-3, 2e-3], [1, 1])
    flags = node(ALLREDUCE, 2, 8, 3e-3)
    steps = (msgspec.structs.replace(made.steps[0], nodes=(*made.steps[0].nodes, flags)),)
    with pytest.raises(UsageError, match="find_unused_parameters"):
        decide(msgspec.structs.replace(made, steps=steps))


def test_gradients_that_travel_in_another_order_are_refused() -> None:
    made = profile([1000, 500], [1e-3, 2e-3], [1, 1])
    nodes = list(made.steps[0].nodes)
    nodes[0], nodes[2] = nodes[2], nodes[0]  # the second one's bucket comes with the first
    steps = (msgspec.structs.replace(made.steps[0], nodes=tuple(nodes)),)
    with pytest.raises(UsageError, match="does not send its gradients in the order"):
        decide(msgspec.structs.replace(made, steps=steps))


def model(**changes: object) -> Model:
    whole = Model("a", (4, 8, 4), (12, 4), (4, 12), (4, 12), 1.0, 0.9)
    return msgspec.structs.replace(whole, **changes)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (Buckets((), 0.0, 0.0), "models must not be empty"),
        (Buckets((model(), model()), 0.0, 0.0), "each list of gradients only once"),
        (Buckets((model(),), -1.0, 0.0), "latency"),
        (Buckets((model(before=(2, 14)),), 0.0, 0.0), "before must consist of whole gradients"),
        (Buckets((model(planned=(12, 4)),), 0.0, 0.0), "planned must be (4, 12)"),
        (Buckets((model(limits=(0,)),), 0.0, 0.0), "limits"),
    ],
)
def test_faults_of_a_section(section: Buckets, words: str) -> None:
    assert any(words in fault for fault in struct_faults("buckets", section))


def test_a_section_without_faults() -> None:
    whole = Buckets(
        (model(), model(gradients=(4,), before=(4,), limits=(), planned=(4,))), 0.0, 0.0
    )
    assert struct_faults("buckets", whole) == []
