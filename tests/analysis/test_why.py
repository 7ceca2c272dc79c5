"""Sentences: each cause from figures that show it, and none where nothing does."""

from __future__ import annotations

import msgspec
import pytest
from keyed import keyed
from synthetic import machine, profile

from dltune.analysis.op_causes import why
from dltune.analysis.roofline import analyse

MILLION = 1_000_000
PEAKS = {"peak_flops": 100e9, "peak_bandwidth": 20e9, "shared_cache": MILLION}


def reason(op, **peaks):
    there = msgspec.structs.replace(machine(2), **(peaks or PEAKS))
    found = analyse(profile(there, [op], {}))
    return why(found.ops[0], found)


def relu(elements, seconds, **counts):
    named = {name.replace("_", "-"): value for name, value in counts.items()}
    return keyed(f"Relu(float[{elements}])", 4 * elements, seconds=seconds, counts=named)


def matmul(seconds, **counts):
    named = {name.replace("_", "-"): value for name, value in counts.items()}
    return keyed(
        "MatMul(float[1000,1000],float[1000,1000])", 4 * MILLION, seconds=seconds, counts=named
    )


def test_compute_bound():
    cause, sentence = reason(matmul({1: 45e-3, 2: 25e-3}, task_clock=50e-3))
    assert cause == "compute"
    assert sentence == ("compute bound: 80 GFLOP/s, 80% of the peak (given in the machine file)")


def test_compute_bound_by_what_was_measured():
    there = msgspec.structs.replace(machine(2), shared_cache=32 * MILLION)
    fast, moving = matmul({1: 40e-3, 2: 20e-3}), relu(MILLION, {1: 100e-6, 2: 60e-6})
    slow = keyed(
        "MatMul(float[1000,2000],float[2000,500])", 2 * MILLION, seconds={1: 40e-3, 2: 25e-3}
    )
    found = analyse(profile(there, [fast, moving, slow], {}))
    sentences = {of.op.key: why(of, found) for of in found.ops}
    assert sentences[fast.key] == (
        "compute",
        "compute bound: 100 GFLOP/s, the highest rate of any op, so the machine's peak can be "
        "higher (MatMul on 2 threads)",
    )
    assert sentences[slow.key] == (
        "compute",
        "compute bound: 80 GFLOP/s, 80% of the highest rate of any op (MatMul on 2 threads)",
    )
    cause, sentence = sentences[moving.key]
    assert cause == "memory"
    assert sentence.endswith("(Relu on 2 threads); its data fit into the caches")


def test_memory_bound():
    cause, sentence = reason(relu(10 * MILLION, {1: 8e-3, 2: 5e-3}))
    assert cause == "memory"
    assert sentence == ("memory bound: 16 GB/s, 80% of the peak (given in the machine file)")


def test_memory_bound_by_its_misses():
    # a tenth of a second for 12 MB of tensors, but 1.8 GB of lines: it reads them again and again
    cause, sentence = reason(matmul({1: 0.2, 2: 0.1}, cache_misses=1.8e9 / 64))
    assert cause == "memory"
    assert "18 GB/s, 90%" in sentence


def test_fault_bound_comes_before_the_traffic_that_faults_make():
    op = relu(10 * MILLION, {1: 9e-3, 2: 5e-3}, page_faults=9766, task_clock=10e-3)
    cause, sentence = reason(op)
    assert cause == "faults"
    # 9766 * 0.5 us of 2 * 5 ms
    assert "page faults: 9766 per run, about 49% of its CPU time" in sentence
    few = relu(10 * MILLION, {1: 9e-3, 2: 5e-3}, page_faults=100, task_clock=10e-3)
    assert reason(few)[0] == "memory"


def test_switched_out():
    op = matmul({1: 190e-3, 2: 100e-3}, context_switches=30.0, task_clock=120e-3)
    cause, sentence = reason(op)
    assert cause == "switched out"
    assert sentence == (
        "switched out: 30.0 context switches per run; its 2 threads had a CPU for only "
        "60% of the time"
    )


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({"context_switches": 0.0}, "with 0.0 context switches per run"),
        ({}, "context switches were not counted"),
    ],
)
def test_waits(counts, told):
    cause, sentence = reason(matmul({1: 190e-3, 2: 100e-3}, task_clock=120e-3, **counts))
    assert cause == "waits"
    assert "2 threads had a CPU for only 60%" in sentence
    assert told in sentence


def test_does_not_scale():
    cause, sentence = reason(matmul({1: 0.1, 2: 0.095}))
    assert cause == "scaling"
    assert sentence == "does not scale: 1.05x as fast with 2 threads as with one"


def test_too_short_to_divide():
    cause, sentence = reason(relu(64, {1: 3e-6, 2: 9e-6}))
    assert cause == "scaling"
    assert sentence.endswith("with 2 threads as with one; at 3 us it is too short to be divided")


def test_nothing_explains_it():
    op = matmul({1: 0.2, 2: 0.1}, task_clock=0.2, page_faults=3.0)
    cause, sentence = reason(op)
    assert cause == "unknown"
    assert sentence == (
        "unexplained by the measurements: 20 GFLOP/s (20.0% of the peak), 0.12 GB/s (0.6% of the "
        "peak), its 2 threads had a CPU for 100% of the time, 3 page faults per run, 2.00x as "
        "fast with 2 threads"
    )


def test_nothing_is_known():
    op = keyed("DecodeJpeg(string[])", 100, seconds={1: 1e-3})
    assert reason(op) == (
        "unknown",
        "unexplained by the measurements: no events were counted",
    )


def test_an_op_without_times():
    assert "can wait for another" in reason(keyed("IteratorGetNext()"))[1]
