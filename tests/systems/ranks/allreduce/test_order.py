"""Bins that are planned: every gradient once, in an order that serves each call."""

from __future__ import annotations

import msgspec
import pytest
import synthetic
import synthetic_ranks

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.schemas.profile import Profile
from dltune.simulate.overlap import Cost
from dltune.systems.ranks.allreduce.measurements import SINGLE, calls, unobserved
from dltune.systems.ranks.allreduce.model import Model
from dltune.systems.ranks.allreduce.order import Bins, Ordered, ordered, traversed
from dltune.systems.ranks.allreduce.section import AllreducePlan, core_faults

COST = Cost(1e-3, 1e-9)


def model(profile: Profile) -> Model:
    return Model(profile, calls(profile), unobserved(2, 2, "gloo"))


def planned(profile: Profile, threshold: int = 1 << 20, best: int = 3) -> Ordered:
    """With a prediction that likes this number of bins."""

    def predict(bins: Bins) -> float:
        return 1.0 + abs(len(bins) - best)

    made = model(profile)
    ready = [float(k) for k in reversed(range(len(made.sizes)))]
    return ordered(made, ready, COST, threshold, predict)


def test_the_number_of_bins_that_is_predicted_best() -> None:
    found = planned(synthetic_ranks.profile(synthetic.machine(2)))
    (order,) = found.orders
    assert len(order.bins) == 3
    assert sorted(p for b in order.bins for p in b.tensors) == list(range(6))
    # the last layer's gradient is there first
    assert order.bins[0].tensors[0] == 5
    assert order.bins[-1].tensors[-1] == 0
    section = AllreducePlan("", "gloo", 2, 2, None, None, found.orders, None, None, False, (), ())
    assert [*struct_faults("allreduce", section), *core_faults(section, 2)] == []


def test_fewer_bins_where_more_bring_nothing() -> None:
    profile = synthetic_ranks.profile(synthetic.machine(2))
    made = model(profile)
    found = ordered(made, [0.0] * 6, COST, 1 << 20, lambda bins: 1.0 - 1e-4 * len(bins))
    assert len(found.bins) == 1


def test_the_threshold_holds() -> None:
    profile = synthetic_ranks.profile(synthetic.machine(2))
    found = planned(profile, threshold=24_000, best=1)
    (order,) = found.orders
    assert all(b.bytes <= 24_000 or len(b.tensors) == 1 for b in order.bins)
    assert sum(b.bytes for b in order.bins) == 4000 * 21


def twice(profile: Profile, *, dependent: bool) -> Profile:
    """The same list reduced once more, as a second call. `dependent`: there, the gradient of place
    1 is computed from the reduced one of place 0."""
    step = profile.steps[0]
    nodes = list(step.nodes)
    second: dict[int, int] = {}
    for index, node in enumerate(step.nodes):
        if node.type == SINGLE:
            name = node.name.replace("Tape_Allreduce", "Tape_Allreduce_1")
            second[int(node.name.rpartition("_")[2])] = len(nodes)
            nodes.append(msgspec.structs.replace(node, name=name, inputs=(index,)))
    if dependent:
        child = nodes[second[1]]
        nodes[second[1]] = msgspec.structs.replace(child, control=(second[0],))
    step = msgspec.structs.replace(step, nodes=tuple(nodes))
    return msgspec.structs.replace(profile, steps=(step,))


def test_two_calls_with_lists_that_look_alike_share_an_order() -> None:
    profile = twice(synthetic_ranks.profile(synthetic.machine(2)), dependent=False)
    made = model(profile)
    assert len(made.calls) == 2
    found = planned(profile, best=2)
    assert len(found.orders) == 1
    assert sorted(p for b in found.bins for p in b.tensors) == list(range(12))


def test_two_such_calls_that_no_order_serves_are_refused() -> None:
    profile = twice(synthetic_ranks.profile(synthetic.machine(2)), dependent=True)
    with pytest.raises(UsageError, match="no order of bins is right for both"):
        planned(profile, best=2)


def test_what_traversing_tells() -> None:
    made = model(synthetic_ranks.profile(synthetic.machine(2)))
    found = traversed(made, made.calls[0])
    assert len(found.topology.order) == 6
    assert found.nodes == len(made.graphs[0])
    assert all(mask == 0 for mask in found.topology.before)  # gradients wait for no allreduce
