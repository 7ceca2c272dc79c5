"""Operators of profiled steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_steps import Network, Shape, Value, perceptron
from profiled_jobs import Done

from dltune.analysis.flops import filters, operations
from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.systems.parallelism.model.profile_operators import Measured, measured
from dltune.systems.parallelism.schemas import operators as documents
from dltune.systems.parallelism.schemas.operators import Operator, Region


def of(net: Network) -> Measured:
    found = measured(net.step, list(net.ops.values()))
    assert struct_faults("", found.operators) == []
    return found


def named(found: Measured, name: str) -> Operator:
    return next(one for one in found.operators.operators if one.name == name)


def kinds(operator: Operator) -> list[tuple[int, str]]:
    return [(dimension.size, dimension.kind) for dimension in operator.dimensions]


def test_dense_layers_are_operators_with_what_follows_them() -> None:
    found = of(perceptron())
    data, labels, first, second, loss = found.operators.operators
    assert [first.name, second.name] == ["dense", "dense_1"]
    assert kinds(data) == [(16, "sample"), (8, "attribute")]
    assert not data.gradient
    assert kinds(labels) == [(16, "sample")]
    assert kinds(first) == [(16, "sample"), (12, "parameter")]
    assert first.gradient
    assert first.inputs == (documents.Input(0, (Region(1, 0), Region(8))),)
    assert kinds(loss) == [(16, "sample")]
    assert [one.operator for one in loss.inputs] == [1, 3]
    assert [w.bytes for w in found.operators.weights] == [4 * 8 * 12, 4 * (12 * 10 + 10)]
    assert [w.name for w in found.operators.weights] == ["dense", "dense_1"]


@pytest.mark.parametrize("momentum", [False, True])
def test_gradients_go_with_their_operator_and_updates_with_none(momentum: bool) -> None:
    net = perceptron(momentum=momentum)
    found = of(net)
    _, _, first, second, _ = found.operators.operators
    product = 2 * 16 * 8 * 12
    assert first.flops == product + 16 * 12  # the rectifier
    assert first.backward_flops == product + 16 * 12  # nothing below it needs a gradient
    product = 2 * 16 * 12 * 10
    assert second.flops == product + 16 * 10
    assert second.backward_flops == 2 * product + 16 * 10
    # a product and a rectifier, then a product and the rectifier's gradient; a weight is read too
    assert found.forward[2].alone == pytest.approx(4e-3)
    assert found.backward[2].alone == pytest.approx(2e-3)
    assert found.backward[2].best == pytest.approx(1e-3)
    assert found.backward[3].alone == pytest.approx(3e-3)
    updates = sum(node.type.startswith("Assign") for node in net.nodes)
    assert found.update.alone >= 1e-3 * 2 * updates / (2 if momentum else 1)
    everything = sum((*found.forward, *found.backward, found.rest), found.update)
    assert everything.alone == pytest.approx(1e-3 * len(net.nodes))


def convolution(image: Shape, filter_: Shape, stride: int, padding: str) -> Network:
    net = Network()
    batch, height, width, _ = image
    x, labels = net.examples(image, (batch,))
    handle, weight = net.weight(filter_, "conv2d_1")
    out = [
        -(-size // stride) if padding == "SAME" else (size - taps) // stride + 1
        for size, taps in zip((height, width), filter_, strict=False)
    ]
    lies = f"data_format=NHWC, padding={padding}, strides=[1,{stride},{stride},1]"
    y = net.one("Conv2D", [x, weight], (batch, *out, filter_[-1]), attributes=lies)
    flat = net.one("Reshape", [y, net.constant(2)], (batch, out[0] * out[1] * filter_[-1]))
    dense, w = net.weight((flat.shape[1], 10), "dense_1")
    back = net.loss(net.product(flat, w), labels)
    net.update(dense, net.product(flat, back, left=True))
    down = net.product(back, w, right=True)
    down = net.one("Reshape", [down, net.constant(4)], y.shape)
    kind = "Conv2DBackpropFilter"
    net.update(handle, net.one(kind, [x, net.constant(4), down], filter_, attributes=lies))
    return net


@given(st.integers(5, 9), st.integers(2, 4), st.integers(1, 3), st.sampled_from(["SAME", "VALID"]))
def test_a_convolution_reads_just_what_its_windows_lie_on(
    size: int, taps: int, stride: int, padding: str
) -> None:
    found = of(convolution((4, size, size + 11, 3), (taps, taps, 3, 6), stride, padding))
    data, _, conv, dense, _ = found.operators.operators
    (read,) = conv.inputs
    assert [kind for _, kind in kinds(conv)] == [
        "sample",
        *(["attribute"] * (len(conv.dimensions) - 2)),
        "parameter",
    ]
    assert all(region.of is None for region in dense.inputs[0].regions[1:])
    if len(conv.dimensions) < 4:
        return  # one window only
    for axis in (1, 2):
        had, given = data.dimensions[axis].size, conv.dimensions[axis].size
        missing = max(0, (given - 1) * stride + taps - had) if padding == "SAME" else 0
        region = read.regions[axis]
        for position in range(given):
            first = position * stride - missing // 2
            assert (region.stride * position + region.start, region.extent) == (first, taps)
            assert region.of == axis
    assert read.regions[3] == Region(3)


def test_a_layer_normalisation_is_one_operator_that_takes_rows_whole() -> None:
    net = Network()
    x, labels = net.examples((16, 8), (16,))
    first, w1 = net.weight((8, 12), "dense_1")
    gamma, scale = net.weight((12,), "layer_normalization_1")
    second, w2 = net.weight((12, 10), "dense_1_2")
    hidden = net.product(x, w1)
    keep = "keep_dims=true"
    mean = net.one("Mean", [hidden, net.constant(1)], (16, 1), attributes=keep)
    off = net.one("SquaredDifference", [hidden, mean], (16, 12))
    spread = net.one("Mean", [off, net.constant(1)], (16, 1), attributes=keep)
    by = net.one("Mul", [net.one("Rsqrt", [spread], (16, 1)), scale], (16, 12))
    normed = net.one("Mul", [by, hidden], (16, 12))
    back = net.loss(net.product(normed, w2), labels)
    net.update(second, net.product(normed, back, left=True))
    down = net.product(back, w2, right=True)
    by_hidden = net.one("Mul", [down, hidden], (16, 12))
    sums = net.one("Sum", [by_hidden, net.constant(1)], (12,), attributes="keep_dims=false")
    net.update(gamma, sums)
    net.update(first, net.product(x, net.one("Mul", [down, by], (16, 12)), left=True))
    found = of(net)
    norm = named(found, "layer_normalization")
    assert kinds(norm) == [(16, "sample"), (12, "whole")]
    assert norm.inputs == (documents.Input(2, (Region(1, 0), Region(12))),)
    assert found.operators.weights[norm.weights or 0].bytes == 4 * 12
    assert len(found.operators.operators) == 6


def branches(join: str) -> Network:
    net = Network()
    x, labels = net.examples((16, 8), (16,))
    handles = [net.weight((8, 12), f"dense_{n}_1") for n in (1, 2)]
    sides = [net.product(x, value) for _, value in handles]
    width = 24 if join == "ConcatV2" else 12
    more = [net.constant(0)] if join == "ConcatV2" else []
    joined = net.one(join, [*sides, *more], (16, width))
    last, w = net.weight((width, 10), "dense_3_1")
    back = net.loss(net.product(joined, w), labels)
    net.update(last, net.product(joined, back, left=True))
    down = net.product(back, w, right=True)
    for (handle, _), side in zip(handles, sides, strict=True):
        part = down if width == 12 else net.one("Slice", [down], side.shape)
        net.update(handle, net.product(x, part, left=True))
    return net


def test_branches_that_are_added_meet_in_an_operator() -> None:
    joined = of(branches("AddV2")).operators.operators[4]
    assert kinds(joined) == [(16, "sample"), (12, "attribute")]
    assert [read.operator for read in joined.inputs] == [2, 3]
    assert all(read.regions == (Region(1, 0), Region(1, 1)) for read in joined.inputs)


def test_branches_side_by_side_are_read_where_they_lie() -> None:
    joined = of(branches("ConcatV2")).operators.operators[4]
    assert kinds(joined) == [(16, "sample"), (24, "attribute")]
    assert [read.regions[1] for read in joined.inputs] == [
        Region(1, 1),
        Region(1, 1, start=-12),
    ]


def test_operators_of_one_weight_are_a_block() -> None:
    net = Network()
    x, labels = net.examples((16, 12), (16,))
    handle, w = net.weight((12, 12), "cell_1")
    steps = [x]
    for _ in range(3):
        steps.append(net.one("Tanh", [net.product(steps[-1], w)], (16, 12)))
    back, gradients = net.loss(steps[-1], labels), []
    for read, out in zip(steps[-2::-1], steps[:0:-1], strict=True):
        back = net.one("TanhGrad", [out, back], (16, 12))
        gradients.append(net.product(read, back, left=True))
        back = net.product(back, w, right=True)
    net.update(handle, net.one("AddN", gradients, (12, 12)))
    found = of(net)
    cells = found.operators.operators[2:5]
    assert {one.weights for one in cells} == {0}
    assert {one.block for one in cells} == {"cell"}
    assert [weights.bytes for weights in found.operators.weights] == [4 * 12 * 12]
    product = 2 * 16 * 12 * 12
    assert [one.backward_flops // product for one in cells] == [2, 2, 2]


def test_an_op_that_is_not_known_is_divided_by_samples_alone() -> None:
    net = Network()
    x, labels = net.examples((16, 8), (16,))
    handle, w = net.weight((8, 10), "dense_1")
    odd = net.one("Betainc", [x], (16, 8))
    back = net.loss(net.product(odd, w), labels)
    net.update(handle, net.product(odd, back, left=True))
    found = of(net)
    assert kinds(found.operators.operators[2]) == [(16, "sample"), (8, "whole")]
    assert found.uncounted == ("Betainc", "Const", "IteratorGetNext")


def test_heads_are_read_by_the_block_of_their_numbers() -> None:
    net = Network()
    x, labels = net.examples((16, 6, 8), (16, 6))
    names = ("query", "key", "value")
    weights = [net.weight((8, 8), f"attention_1/{name}_1") for name in names]
    flat = {"attributes": "adj_x=false, adj_y=false"}
    flats = [net.one("BatchMatMulV2", [x, w], (16, 6, 8), **flat) for _, w in weights]
    q, k, v = (net.one("Reshape", [one, net.constant(4)], (16, 6, 2, 4)) for one in flats)
    scores = net.one("Einsum", [q, k], (16, 2, 6, 6), attributes="equation=BTNH,BSNH->BNTS")
    shares = net.one("Softmax", [scores], (16, 2, 6, 6))
    mixed = net.one("Einsum", [shares, v], (16, 6, 2, 4), attributes="equation=BNTS,BSNH->BTNH")
    logits = net.one("Reshape", [mixed, net.constant(3)], (16, 6, 8))
    back = net.one("Reshape", [net.loss(logits, labels), net.constant(4)], (16, 6, 2, 4))
    down = net.one("Einsum", [back, shares], (16, 6, 2, 4), attributes="equation=BTNH,BNTS->BSNH")
    down = net.one("Reshape", [down, net.constant(3)], (16, 6, 8))
    turned = "adj_x=true, adj_y=false"
    to_value = net.one("BatchMatMulV2", [x, down], (16, 8, 8), attributes=turned)
    net.update(weights[2][0], net.one("Sum", [to_value, net.constant(1)], (8, 8)))
    found = of(net)
    value = named(found, "attention/value")
    assert kinds(value) == [(16, "sample"), (6, "attribute"), (8, "parameter")]
    into = next(one for one in found.operators.operators if "BNTS,BSNH" in one.type)
    assert kinds(into) == [(16, "sample"), (6, "attribute"), (2, "attribute"), (4, "whole")]
    places = {found.operators.operators[read.operator].name: read.regions for read in into.inputs}
    assert places["attention/value"] == (Region(1, 0), Region(6), Region(4, 2, stride=4))
    softmax = next(one for one in found.operators.operators if one.type.startswith("Softmax"))
    assert kinds(softmax)[3] == (6, "whole")
    # the einsum's own gradient, and that to a weight by one of three products of the same
    assert into.backward_flops == into.flops
    assert value.backward_flops > value.flops


def test_a_mask_that_is_drawn_is_no_example_but_what_is_computed_with_is() -> None:
    net = Network()
    x, labels = net.examples((16, 8), (16,))
    noise = net.one("RandomStandardNormal", [net.constant(2)], (16, 5))
    mask = net.one("RandomUniform", [net.constant(2)], (16, 12))
    first, w1 = net.weight((8, 12), "dense_1")
    second, w2 = net.weight((5, 12), "dense_1_2")
    last, w3 = net.weight((12, 10), "dense_2_1")
    sides = [net.product(x, w1), net.product(noise, w2)]
    hidden = net.one("Mul", [net.one("AddV2", sides, (16, 12)), mask], (16, 12))
    back = net.loss(net.product(hidden, w3), labels)
    net.update(last, net.product(hidden, back, left=True))
    down = net.one("Mul", [net.product(back, w3, right=True), mask], (16, 12))
    net.update(first, net.product(x, down, left=True))
    net.update(second, net.product(noise, down, left=True))
    found = of(net).operators.operators
    types = [one.type.split()[0] for one in found if not one.inputs]
    assert sorted(types) == ["IteratorGetNext", "IteratorGetNext", "RandomStandardNormal"]
    assert len(found) == 8


def test_gradients_that_are_clipped_by_the_norm_of_all_still_have_their_operators() -> None:
    plain = of(perceptron())
    clipped = of(perceptron(clip=True))
    for one, other in zip(plain.operators.operators, clipped.operators.operators, strict=True):
        assert one.backward_flops == other.backward_flops
    assert clipped.update.alone > plain.update.alone


def test_padding_and_parts_read_all_that_they_may() -> None:
    net = Network()
    x, labels = net.examples((16, 10), (16,))
    handle, w = net.weight((9, 10), "dense_1")
    padded = net.one("Pad", [x, net.constant(2)], (16, 12))
    part = net.one("Slice", [padded, net.constant(2)], (16, 9))
    even = net.one("Mul", [part, net.one("ReadVariableOp", [net.handle()], ())], (16, 9))
    doubled = net.one("ConcatV2", [even, even, net.constant(0)], (16, 18))
    halves = net.add("Split", [doubled], (16, 9), (16, 9), attributes="num_split=2")
    mean = net.one("MaximumOfBoth", [halves[1]], (16, 9))
    back = net.loss(net.product(mean, w), labels)
    net.update(handle, net.product(mean, back, left=True))
    operators = of(net).operators.operators
    joined = operators[2]
    # a pad of 2 and a part that leaves out 3, wherever they begin
    assert joined.inputs[0].regions[1].extent >= 6
    assert kinds(operators[3]) == [(16, "sample"), (9, "whole")]


def lookup(update: str) -> Network:
    net = Network()
    tokens, labels = net.examples((16, 6), (16, 6), dtype="int32")
    table = net.handle()
    (rows,) = net.add(
        "ResourceGather", [table, tokens], (16, 6, 10), name="functional_1/words_1/at"
    )
    back = net.loss(rows, labels)
    if update == "ResourceScatterSub":
        net.add(update, [table, tokens, back])
    else:
        net.update(table, net.one("UnsortedSegmentSum", [back, tokens], (50, 10)))
    return net


def test_rows_of_a_table_are_divided_by_what_they_hold() -> None:
    found = of(lookup("AssignSubVariableOp"))
    rows = named(found, "words")
    assert kinds(rows) == [(16, "sample"), (6, "attribute"), (10, "parameter")]
    assert found.operators.weights == (documents.Weights("words", 4 * 50 * 10),)


def test_a_table_of_which_only_rows_are_seen_is_refused() -> None:
    refused(lookup("ResourceScatterSub"), "the size of the weight")


def test_a_variable_that_the_graph_names_gives_its_name() -> None:
    net = Network()
    x, labels = net.examples((16, 8), (16,))
    handle = net.one("VarHandleOp", (), (), name="tower/conv/kernel", dtype="resource")
    w = net.read(handle, (8, 10), "MatMul/ReadVariableOp")
    net.update(handle, net.product(x, net.loss(net.product(x, w), labels), left=True))
    assert [weights.name for weights in of(net).operators.weights] == ["tower/conv"]


def test_dimensions_beyond_four_become_one_that_is_not_divided() -> None:
    net = Network()
    x, labels = net.examples((16, 4, 6, 8, 3), (16,))
    lies = "data_format=NDHWC, ksize=[1,2,2,2,1], padding=VALID, strides=[1,2,2,2,1]"
    pooled = net.one("MaxPool3D", [x], (16, 2, 3, 4, 3), attributes=lies)
    flat = net.one("Reshape", [pooled, net.constant(2)], (16, 72))
    handle, w = net.weight((72, 10), "dense_1")
    back = net.loss(net.product(flat, w), labels)
    net.update(handle, net.product(flat, back, left=True))
    pool, dense = of(net).operators.operators[2:4]
    assert kinds(pool) == [(16, "sample"), (2, "attribute"), (3, "attribute"), (12, "whole")]
    assert pool.inputs[0].regions[1:] == (Region(2, 1, 2), Region(2, 2, 2), Region(24))
    assert [region.extent for region in dense.inputs[0].regions] == [1, 2, 3, 12]


def refused(net: Network, *words: str) -> None:
    with pytest.raises(UsageError) as raised:
        of(net)
    assert all(word in str(raised.value) for word in words), raised.value


def test_a_loop_is_refused_by_name() -> None:
    net = perceptron()
    net.add("NextIteration", [Value(0, 0, (), "int32")], (), name="while/next")
    refused(net, "'while/next'", "loop")


def test_a_step_that_trains_nothing_is_refused() -> None:
    net = Network()
    x, labels = net.examples((16, 8), (16,))
    net.loss(net.product(x, net.weight((8, 10), "dense_1")[1]), labels)
    refused(net, "no weight")


def test_examples_that_do_not_count_alike_are_refused() -> None:
    net = perceptron()
    (more,) = net.examples((7, 8))
    net.one("Relu", [more], (7, 8))
    refused(net, "batch size", "[7, 16]")


def test_samples_that_are_lost_among_other_axes_are_refused() -> None:
    net = Network()
    x, labels = net.examples((8, 6, 8), (8,))
    handle, w = net.weight((48, 10), "dense_1")
    turned = net.one("Transpose", [x, net.constant(3)], (6, 8, 8), name="turn")
    flat = net.one("Reshape", [turned, net.constant(2)], (8, 48))
    net.update(handle, net.product(flat, net.loss(net.product(flat, w), labels), left=True))
    refused(net, "'turn'", "the batch size is 8")


@pytest.mark.tensorflow
def test_a_job_with_keras_fit(profiled: Callable[[str], Done]) -> None:
    profile = profiled("keras_fit").profile
    step = max(profile.steps, key=lambda step: step.share)
    found = measured(step, profile.ops)
    assert struct_faults("", found.operators) == []
    sizes = {weights.name: weights.bytes // 4 for weights in found.operators.weights}
    assert sizes == {
        "sequential/conv2d": 3 * 3 * 3 * 16 + 16,
        "sequential/conv2d_1": 3 * 3 * 16 * 32 + 32,
        "sequential/dense": 12 * 12 * 32 * 64 + 64,
        "sequential/dense_1": 64 * 10 + 10,
    }
    assert kinds(named(found, "sequential/conv2d_1")) == [
        (32, "sample"),
        (12, "attribute"),
        (12, "attribute"),
        (32, "parameter"),
    ]
    known = filters(profile.ops)
    every = sum(
        (operations(profile.ops[node.op], known) or 0) * node.repeats
        for node in step.nodes
        if node.op is not None
    )
    counted = sum(one.flops + one.backward_flops for one in found.operators.operators)
    assert 0.98 * every < counted <= every
    for name in ("sequential/conv2d_1", "sequential/dense", "sequential/dense_1"):
        one = named(found, name)
        assert one.backward_flops / one.flops == pytest.approx(2, rel=0.05)
    in_them = sum((*found.forward, *found.backward), start=type(found.rest)()).alone
    assert in_them > 0.8 * (in_them + found.update.alone + found.rest.alone)
