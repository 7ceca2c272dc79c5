"""Gradients' places in the list that a job hands to Horovod, from captured graphs."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
import synthetic
import synthetic_ranks

from dltune.base.errors import UsageError
from dltune.schemas.profile import Node, Profile
from dltune.systems.ranks.allreduce.measurements import calls


def changed(profile: Profile, change: Callable[[Node], Node | None]) -> Profile:
    """Nodes whose `change` is None lose their work; inputs keep their indices."""
    step = profile.steps[0]
    nodes = tuple(
        change(node) or msgspec.structs.replace(node, type="NoOp", name="gone", op=None)
        for node in step.nodes
    )
    step = msgspec.structs.replace(step, nodes=nodes)
    return msgspec.structs.replace(profile, steps=(step,))


def job() -> Profile:
    return synthetic_ranks.profile(synthetic.machine(2), layers=4, elements=10)


def reduces(node: Node) -> bool:
    return node.type == "HorovodAllreduce"


def test_the_order_of_the_list_not_that_of_the_graph() -> None:
    (call,) = calls(job())
    assert call.scope == "DistributedGradientTape_Allreduce"
    assert [gradient.shape for gradient in call.gradients] == [(10, k + 1) for k in range(4)]
    assert {gradient.dtype for gradient in call.gradients} == {"float32"}
    assert [gradient.bytes for gradient in call.gradients] == [40, 80, 120, 160]
    assert [gradient.name for gradient in call.gradients] == [f"grad_{k}" for k in range(4)]


def test_equal_shapes_are_told_apart_by_the_conditional_s_number() -> None:
    profile = synthetic_ranks.profile(synthetic.machine(2), layers=12)
    (call,) = calls(profile)
    nodes = profile.steps[0].nodes
    assert [nodes[g.node].name.rpartition("_")[2] for g in call.gradients] == [
        str(k) for k in range(12)
    ]


def test_two_calls_of_one_step() -> None:
    def second(node: Node) -> Node:
        name = node.name
        if reduces(node) and "/cond_3/" not in name and "/cond_2/" not in name:
            name = name.replace("Tape_Allreduce", "Tape_Allreduce_1")
        return msgspec.structs.replace(
            node, name=name.replace("cond_2/", "cond/").replace("cond_3/", "cond_1/")
        )

    found = {call.scope: call for call in calls(changed(job(), second))}
    assert set(found) == {
        "DistributedGradientTape_Allreduce",
        "DistributedGradientTape_Allreduce_1",
    }
    shapes = [g.shape for g in found["DistributedGradientTape_Allreduce"].gradients]
    assert shapes == [(10, 3), (10, 4)]


def test_sparse_gradients_have_places_but_are_not_planned() -> None:
    def sparse(node: Node) -> Node:
        if "/cond_1/" in node.name:
            return msgspec.structs.replace(node, type="HorovodAllgather")
        return node

    (call,) = calls(changed(job(), sparse))
    assert [gradient.shape for gradient in call.gradients] == [(10, 1), (10, 3), (10, 4)]


def test_an_allreduce_outside_of_a_list_is_left_alone() -> None:
    def metric(node: Node) -> Node:
        if "/cond_3/" in node.name:
            return msgspec.structs.replace(node, name="HorovodAllreduce_loss_0")
        return node

    (call,) = calls(changed(job(), metric))
    assert len(call.gradients) == 3


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda node: None if reduces(node) else node, "no Horovod operations"),
        (
            lambda node: (
                msgspec.structs.replace(node, type="HorovodGroupedAllreduce")
                if reduces(node)
                else node
            ),
            "groups its gradients itself",
        ),
        (
            lambda node: msgspec.structs.replace(node, name="mine") if reduces(node) else node,
            "reduces a list of gradients",
        ),
        (
            lambda node: msgspec.structs.replace(node, op=None) if reduces(node) else node,
            "did not run in the profiled steps",
        ),
        (lambda node: None if "/cond_1/" in node.name else node, "number 1 is not in the graph"),
        (
            lambda node: msgspec.structs.replace(
                node, name=node.name.replace("/cond_1/", "/cond_2/")
            ),
            "gradient 2 twice",
        ),
    ],
)
def test_what_cannot_be_told_is_refused(change: Callable[[Node], Node | None], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        calls(changed(job(), change))
