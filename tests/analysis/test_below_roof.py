"""Why an op stays below the machine's roof: 256 GFLOP/s in float64 with AVX-512, 128 with AVX."""

from __future__ import annotations

import msgspec
import pytest
from keyed import keyed
from roofed import roofs
from synthetic import machine, profile

from dltune.analysis.op_causes import below_roof, why
from dltune.analysis.roofline import analyse

WHEEL = ("AVX2", "AVX512F", "AVX512_VNNI", "FMA")


def matmul(m, n, k, rate, dtype="double", kind="MatMul"):
    """At so many GFLOP/s."""
    size = {"double": 8, "float": 4, "bfloat16": 2}[dtype]
    key = f"{kind}({dtype}[{m},{k}],{dtype}[{k},{n}])"
    return keyed(key, size * m * n, seconds={2: 2 * m * n * k / (rate * 1e9)})


def analysed(op, lacks=WHEEL, **changes):
    whole = profile(machine(2), [op], {})
    build = msgspec.structs.replace(whole.framework, lacks=lacks)
    return analyse(msgspec.structs.replace(whole, roofs=roofs(**changes), framework=build))


def causes(op, lacks=WHEEL):
    found = analysed(op, lacks)
    return {one.reason: one for one in below_roof(found.ops[0], found)}


def test_float64_through_kernels_compiled_for_less():
    found = causes(matmul(1000, 1000, 1000, 50))
    assert list(found) == ["instructions"]
    assert found["instructions"].ceiling == 128e9
    assert found["instructions"].sentence == (
        "oneDNN has no kernel for float64, and the framework's own kernels are compiled without "
        "AVX2, AVX512F, FMA: the peak of this machine is 128 GFLOP/s with AVX, but 256 GFLOP/s "
        "with AVX-512"
    )


def test_a_build_that_lacks_nothing_is_no_cause_and_one_not_known_neither():
    assert causes(matmul(1000, 1000, 1000, 50), lacks=()) == {}
    assert causes(matmul(1000, 1000, 1000, 50), lacks=None) == {}


def test_onednn_makes_its_code_for_the_cpu_that_is_there():
    assert causes(matmul(1000, 1000, 1000, 200, "float", "_MklMatMul")) == {}
    assert list(causes(matmul(1000, 1000, 1000, 200, "float"))) == ["no oneDNN"]


@pytest.mark.parametrize(("m", "n", "k"), [(8, 4000, 4000), (4000, 8, 4000), (4000, 4000, 8)])
def test_too_thin_a_shape_is_told_by_its_dimension(m, n, k):
    thin = causes(matmul(m, n, k, 20))["thin"]
    name, matrix = {
        m: ("m", "the second matrix"),
        n: ("n", "the first matrix"),
        k: ("k", "the result"),
    }[8]
    # 256 MB at the least, so out of memory: 8 bytes at 64 GB/s are 32 operations at 256 GFLOP/s
    assert f"{name} = 8, so each number of {matrix} is used only 8 times" in thin.sentence
    assert "takes as long as 32 uses" in thin.sentence
    assert thin.ceiling == pytest.approx(256e9 / (1 + 32 / 8 + 2 * 32 / 4000))


def test_the_lowest_ceiling_comes_first():
    found = analysed(matmul(65536, 25, 50, 20))
    first, second = below_roof(found.ops[0], found)
    assert (first.reason, second.reason) == ("thin", "instructions")
    assert first.ceiling < second.ceiling


def test_a_small_product_is_held_against_the_cache_that_it_lies_in():
    """In L2, at 500 GB/s, four uses are enough."""
    assert "thin" not in causes(matmul(100, 100, 16, 20))
    assert "500 GB/s of L2" in causes(matmul(200, 200, 4, 20))["thin"].sentence


def test_an_op_near_its_roof_and_one_that_only_moves_have_no_cause():
    assert causes(matmul(1000, 1000, 1000, 160)) == {}
    relu = keyed("Relu(double[1000000])", 8_000_000, seconds={2: 1.0})
    assert causes(relu) == {}


def test_without_roofs_nothing_is_known():
    found = analyse(profile(machine(2), [matmul(1000, 1000, 1000, 50)], {}))
    assert below_roof(found.ops[0], found) == ()


def test_the_sentence_of_the_op():
    found = analysed(matmul(1000, 1000, 1000, 50))
    cause, sentence = why(found.ops[0], found)
    assert cause == "kernel"
    assert sentence.startswith(
        "below the roofline: 50 GFLOP/s, 20% of the peak (measured, float64 with AVX-512); "
        "oneDNN has no kernel for float64"
    )
