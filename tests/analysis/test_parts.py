"""How much of a step is known."""

from __future__ import annotations

import msgspec
import pytest
from synthetic import machine, network, node, op

from dltune.analysis.step_parts import measured, unmeasured
from dltune.schemas.profile import Framework, Part


@pytest.mark.parametrize(
    ("kind", "share"), [("graph_0_cpp_fused_add_0", 1.0), ("aten::mul", pytest.approx(1 / 3))]
)
def test_what_is_compiled_keeps_its_threads_and_is_known(kind, share):
    """Beside ops that were tried, for half as long."""
    made = network(machine(2), layers=2)
    tried = sum((one.own or 0.0) * one.count for one in made.ops if one.times)
    other = msgspec.structs.replace(op(kind, None, made.machine), own=2 * tried)
    step = msgspec.structs.replace(
        made.steps[0],
        nodes=(*made.steps[0].nodes, node(kind, len(made.ops))),
        parts=(Part("ops", 3 * tried),),
    )
    profile = msgspec.structs.replace(
        made,
        framework=Framework("pytorch", "2.13.0", "", "3.11"),
        ops=(*made.ops, other),
        steps=(step,),
    )
    assert measured(profile) == share
    assert bool([*unmeasured(profile)]) == (share != 1.0)
