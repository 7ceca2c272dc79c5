from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
import synthetic

from dltune.base.errors import UsageError
from dltune.schemas.profile import Tensor
from dltune.systems.memory.model.profiled_step import measured


def began(node, at):
    return msgspec.structs.replace(node, start=at, end=at + 0.5)


def step(nodes):
    return SimpleNamespace(name="step", nodes=nodes)


def test_nodes_come_in_the_order_in_which_they_began():
    nodes = [
        synthetic.node("Const_a", None),
        began(synthetic.node("Relu_late", 1, [0]), 2.0),
        began(synthetic.node("Relu_early", 1, [0]), 1.0),
        synthetic.node("NoOp_unknown", None, [1]),
        began(synthetic.node("Add_both", 1, [1, 2]), 3.0),
    ]
    found = measured(step(nodes))
    assert found.order == [0, 2, 1, 3, 4]
    assert found.seconds == [0.0, 0.5, 0.5, 0.0, 0.5]


def test_a_variables_reader_may_run_again_until_the_variable_is_written():
    nodes = [
        synthetic.node("Arg_handle", None),
        synthetic.node("ReadVariableOp_value", 1, [0]),
        began(synthetic.node("MatMul_product", 1, [1]), 1.0),
        began(synthetic.node("Relu_active", 1, [2]), 2.0),
        began(synthetic.node("AssignSubVariableOp_step", 1, [0, 3]), 3.0),
        began(synthetic.node("RandomUniform_drawn", 1, [3]), 4.0),
        began(synthetic.node("StatelessRandomUniformV2_drawn", 1, [3]), 5.0),
        began(synthetic.node("Conv2D_again", 1, [1]), 6.0),
    ]
    found = measured(step(nodes))
    assert found.order == list(range(8))
    assert found.written == {4: [1]}
    assert found.in_turn == [[1, 4]]
    #                      handle, value, product, active, step, drawn, stateless, conv
    assert found.again == [0, 0, 4, 8, 0, 0, 8, 4]


def test_what_a_written_variable_took_is_counted_by_who_holds_its_value():
    """In the order that was measured it was copied, in another it may not be."""
    writes = synthetic.node("AssignSubVariableOp_step", 1, [0, 1])
    nodes = [
        synthetic.node("VarHandleOp_handle", None),
        began(synthetic.node("MatMul_gradient", 1), 1.0),
        msgspec.structs.replace(began(writes, 2.0), output_bytes=0, scratch=64),
    ]
    tensors = measured(step(nodes)).graph.tensors
    assert tensors.bytes[tensors.producer == 2].tolist() == [0, 0]


def test_a_variable_of_the_old_kind_changes_under_its_readers():
    """No value of before is kept: nothing takes memory where it is written."""
    nodes = [
        synthetic.node("VariableV2_weights", None),
        began(synthetic.node("Identity_read", 1, [0]), 1.0),
        began(synthetic.node("MatMul_product", 1, [1]), 2.0),
        began(synthetic.node("ApplyGradientDescent_step", 1, [0, 2]), 3.0),
    ]
    found = measured(step(nodes))
    assert found.written == {}
    assert found.in_place == {3: [0]}
    assert found.in_turn == [[1, 2, 3]]
    assert found.again == [0, 3, 3, 0]


def test_ops_that_wait_for_each_other_are_named():
    nodes = [synthetic.node("Add_a", 1, [1]), synthetic.node("Add_b", 1, [0])]
    with pytest.raises(UsageError, match="2 ops wait for each other: Add_a, Add_b"):
        measured(step(nodes))


def test_kernels_of_a_type_that_has_written_over_its_input_may_do_so():
    """Views always are their input's memory, and a smaller input has no room."""

    def given(name, at, inputs, bytes, alias=None):
        out = (Tensor("float", bytes, alias),)
        return msgspec.structs.replace(began(synthetic.node(name, 1, inputs), at), outputs=out)

    nodes = [
        given("MatMul_a", 0.0, [], 8),
        given("Relu_over", 1.0, [0], 8, 0),
        given("Relu_beside", 2.0, [1], 8),
        given("Reshape_view", 3.0, [2], 8, 0),
        given("AddV2_second", 4.0, [3, 1], 8, 1),
        given("AddV2_smaller", 5.0, [0, 4], 16),
    ]
    assert measured(step(nodes)).forwarded == {1: [0], 2: [1], 4: [1]}
