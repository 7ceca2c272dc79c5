"""The networks that FlexFlow was measured with, against published figures."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
from regions import read

from dltune.base import documents
from dltune.base.documents import struct_faults
from dltune.systems.parallelism.networks import NETWORKS, nmt, rnnlm, rnntc
from dltune.systems.parallelism.schemas.operators import load

GRAPHS = {name: build() for name, build in NETWORKS.items()}

# millions of parameters and operations for one sample forwards, as they are published; a
# multiplication and an addition are two. AlexNet, Inception-v3 and ResNet-101: Krizhevsky et al.,
# 2012 (its groups have fewer operations); Keras' applications, and multiplications and additions
# of Zoph et al., "Learning transferable architectures", 2017, and He et al., 2015, whose units
# stride earlier than TF-Slim's. LeNet: of Caffe's example, the products counted by hand.
PUBLISHED = {
    "AlexNet": (61.0, None),
    "Inception-v3": (23.85, 2 * 5.72e9),
    "ResNet-101": (44.7, 2 * 7.6e9),
    "LeNet": (0.431, 2 * (24**2 * 25 * 20 + 8**2 * 25 * 20 * 50 + 800 * 500 + 500 * 10)),
}
# operators beside the data
COUNTS = {
    "AlexNet": 5 + 3 + 3,
    "Inception-v3": 94 + 4 + 10 + 15 + 1,
    "ResNet-101": 1 + 3 * 33 + 4 + 33 + 4 + 1 + 1,
    "RNNTC": 5 * 40 + 1,
    "RNNLM": 4 * 40,
    "NMT": 8 * 40 + 1,
    "LeNet": 6,
}


def parameters(graph):
    return sum(one.bytes for one in graph.weights) / 4


def sample_flops(graph):
    batch = graph.operators[0].dimensions[0].size
    return sum(one.flops for one in graph.operators) / batch


@pytest.mark.parametrize("name", GRAPHS)
def test_a_document_without_fault(name, tmp_path):
    graph = GRAPHS[name]
    assert graph.name == name
    assert struct_faults("", graph) == []
    with documents.claim(tmp_path / "operators.json", overwrite=False) as output:
        output.write(graph)
    assert load(tmp_path / "operators.json") == graph


@pytest.mark.parametrize("name", GRAPHS)
def test_what_hands_the_step_its_data(name):
    graph = GRAPHS[name]
    data = [one for one in graph.operators if not one.gradient]
    assert data == [one for one in graph.operators if not one.inputs]
    assert not any(one.flops or one.backward_flops or one.weights is not None for one in data)
    assert len(graph.operators) - len(data) == COUNTS[name]
    batch = 256 if name == "AlexNet" else 64
    assert {one.dimensions[0].size for one in graph.operators} == {batch}
    assert {one.dimensions[0].kind for one in graph.operators} == {"sample"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name):
    millions, flops = PUBLISHED[name]
    assert parameters(GRAPHS[name]) / 1e6 == pytest.approx(millions, rel=0.015)
    if flops:
        assert sample_flops(GRAPHS[name]) == pytest.approx(flops, rel=0.06)


def test_the_published_language_model():
    """Zaremba et al., 2014: 66 million parameters with 1,500 units."""
    assert parameters(rnnlm(hidden=1500)) == pytest.approx(66e6, rel=0.001)


@pytest.mark.parametrize("name", ["RNNTC", "RNNLM", "NMT"])
def test_two_operations_for_each_weight_and_step(name):
    """Beside embeddings, and what is done element by element."""
    graph = GRAPHS[name]
    products = 0
    for one in graph.operators:
        if one.weights is not None and one.type != "embedding":
            products += 2 * graph.weights[one.weights].bytes / 4
    assert sample_flops(graph) == pytest.approx(products, rel=0.01)


@pytest.mark.parametrize("name", GRAPHS)
def test_parts_read_what_the_whole_reads(name):
    """Together: windows may overlap, and strides longer than windows leave gaps."""
    graph = GRAPHS[name]
    for one in graph.operators:
        for entry in one.inputs:
            given = graph.operators[entry.operator].dimensions
            for region, size in zip(entry.regions, (d.size for d in given), strict=True):
                if region.of is None:
                    assert len(read(region, (0, 1), size)) == min(region.extent, size)
                    continue
                own = one.dimensions[region.of].size
                whole = read(region, (0, own), size)
                for degree in {min(own, n) for n in (2, 3, 4)}:
                    cuts = [n * own // degree for n in range(degree + 1)]
                    parts = [read(region, part, size) for part in itertools.pairwise(cuts)]
                    covered = {place for part in parts for place in part}
                    assert covered <= {*whole}
                    if region.stride <= region.extent:
                        assert covered == {*whole}


@pytest.mark.parametrize("name", GRAPHS)
def test_each_result_is_read(name):
    """But for the predictions."""
    graph = GRAPHS[name]
    readers = Counter(entry.operator for one in graph.operators for entry in one.inputs)
    unread = [one for number, one in enumerate(graph.operators) if not readers[number]]
    ends = {"RNNLM": 40, "NMT": 40}
    assert len(unread) == ends.get(name, 1)
    assert all(one.type.endswith("softmax") for one in unread)


def test_steps_of_a_layer_share_weights_and_block():
    graph = GRAPHS["NMT"]
    layers = {one.name: one.bytes // 4 for one in graph.weights}
    assert layers == {
        "source_embedding": 32_000 * 1024,
        **dict.fromkeys(("encoder_1", "encoder_2"), 4 * 2049 * 1024),
        "target_embedding": 32_000 * 1024,
        **dict.fromkeys(("decoder_1", "decoder_2"), 4 * 2049 * 1024),
        "attention": 2048 * 1024,
        "softmax": 32_000 * 1025,
    }
    for number, name in enumerate(layers):
        steps = [one for one in graph.operators if one.weights == number]
        assert [one.name for one in steps] == [f"{name}/{step}" for step in range(40)]
        assert {one.block for one in steps} == {name}
        assert all(one.dimensions[-1].kind == "parameter" for one in steps)


def test_a_recurrent_step_reads_all_of_its_input_and_state():
    graph = rnntc(batch=8, steps=3, hidden=16)
    names = [one.name for one in graph.operators]
    step = graph.operators[names.index("lstm_2/1")]
    assert [names[entry.operator] for entry in step.inputs] == ["lstm_1/1", "lstm_2/0", "lstm_2/0"]
    spans = [[*read(entry.regions[1], (4, 8), 16)] for entry in step.inputs]
    assert spans == [[*range(16)], [*range(16)], [4, 5, 6, 7]]
    first = graph.operators[names.index("lstm_2/0")]
    assert [names[entry.operator] for entry in first.inputs] == ["lstm_1/0"]


def test_the_decoder_goes_on_from_the_encoder_and_looks_back_at_all_of_it():
    graph = nmt(batch=4, steps=2, hidden=8)
    names = [one.name for one in graph.operators]

    def reads(name):
        return [names[entry.operator] for entry in graph.operators[names.index(name)].inputs]

    assert reads("decoder_2/0") == ["decoder_1/0", "encoder_2/1", "encoder_2/1"]
    assert reads("memory") == ["encoder_2/0", "encoder_2/1"]
    assert reads("attention/1") == ["decoder_2/1", "memory"]
    assert reads("softmax/1") == ["attention/1"]
    memory = graph.operators[names.index("memory")]
    assert math.prod(one.size for one in memory.dimensions) == 4 * 2 * 8
    tokens = graph.operators[names.index("target_embedding/1")].inputs[0]
    assert [*read(tokens.regions[1], (0, 8), 2)] == [1]


def test_variants():
    small = rnnlm(steps=2)
    assert len(small.operators) == 1 + 4 * 2
    assert parameters(small) == parameters(GRAPHS["RNNLM"])
    for name, build in NETWORKS.items():
        graph = build(batch=8)
        assert graph.weights == GRAPHS[name].weights
        assert sample_flops(graph) == pytest.approx(sample_flops(GRAPHS[name]))
