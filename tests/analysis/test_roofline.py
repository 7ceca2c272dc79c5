from __future__ import annotations

import msgspec
import pytest
from keyed import keyed
from roofed import roofs
from synthetic import machine, profile

from dltune.analysis import op_tables
from dltune.analysis.roofline import analyse

MILLION = 1_000_000


def matmul(seconds, **more):
    """2 * 1000^3 operations, 12 MB."""
    return keyed("MatMul(float[1000,1000],float[1000,1000])", 4 * MILLION, seconds=seconds, **more)


def relu(elements, seconds, **more):
    return keyed(f"Relu(float[{elements}])", 4 * elements, seconds=seconds, **more)


def analysed(*ops, **changes):
    there = msgspec.structs.replace(machine(2), **changes)
    return analyse(profile(there, ops, {}))


def test_measured_peaks_are_the_best_that_any_op_reached_and_say_so():
    found = analysed(
        matmul({1: 40e-3, 2: 20e-3}),
        relu(MILLION, {1: 1e-3, 2: 0.8e-3}),
        relu(100 * MILLION, {1: 100e-3, 2: 50e-3}),
        shared_cache=MILLION,
    )
    roof = found.roofline
    assert roof.compute.rate == pytest.approx(100e9)
    assert roof.compute.source == "MatMul on 2 threads"
    assert roof.memory.rate == pytest.approx(16e9)
    assert roof.cache.rate == pytest.approx(16e9)
    assert roof.compute.measured
    assert roof.caches == MILLION


def test_what_caches_hold_says_nothing_of_memory():
    found = analysed(relu(MILLION, {1: 0.1e-3}), shared_cache=32 * MILLION)
    assert found.roofline.memory is None
    assert found.roofline.cache.rate == pytest.approx(80e9)
    unknown = analysed(relu(100 * MILLION, {1: 0.1e-3}))
    assert unknown.roofline.memory is None, "how much the caches hold is not known"


def test_misses_are_memory_traffic_whatever_caches_hold():
    found = analysed(
        relu(MILLION, {1: 1e-3}, counts={"cache-misses": 1e5}), shared_cache=32 * MILLION
    )
    assert found.roofline.memory.rate == pytest.approx(6.4e9)


def test_a_very_short_op_sets_no_peak():
    found = analysed(relu(MILLION, {1: 1e-6}), matmul({1: 1.0}))
    assert found.roofline.cache.rate == pytest.approx(12e6)


def test_peaks_of_the_machine_s_document_come_first():
    found = analysed(
        matmul({1: 20e-3}),
        shared_cache=MILLION,
        peak_flops=400e9,
        peak_bandwidth=50e9,
    )
    assert found.roofline.compute.rate == 400e9
    assert not found.roofline.compute.measured
    assert found.roofline.memory.source == "given in the machine file"
    (op,) = found.ops
    # 2e9 operations for 12 MB: 167 flop/byte * 50 GB/s are more than 400 GFLOP/s
    assert op.position.under == "compute"
    assert op.position.share == pytest.approx(0.25)


def test_below_the_ridge_bandwidth_bounds():
    found = analysed(
        relu(100 * MILLION, {1: 100e-3}),
        shared_cache=MILLION,
        peak_flops=400e9,
        peak_bandwidth=16e9,
    )
    (op,) = found.ops
    assert op.position.under == "memory"
    assert op.position.attainable == pytest.approx(2e9)  # 1/8 flop/byte
    assert op.position.share == pytest.approx(0.5)


def test_an_op_of_no_operations_has_no_place():
    found = analysed(matmul({1: 1e-3}), keyed("Tile(float[9],int32[1])", 360, seconds={1: 1e-3}))
    tile = next(op for op in found.ops if op.op.type == "Tile")
    assert tile.operations == 0
    assert tile.position is None


def test_no_op_at_all():
    found = analysed()
    assert found.ops == ()
    assert found.roofline.compute is None
    assert found.top(3) == []


def test_shares_are_of_the_time_on_one_thread():
    found = analysed(
        relu(MILLION, {1: 1e-3, 2: 0.5e-3}, count=3),
        matmul({1: 9e-3, 2: 0.1e-3}),
        keyed("IteratorGetNext()"),
    )
    assert [op.op.type for op in found.ops] == ["MatMul", "Relu", "IteratorGetNext"]
    assert [op.share for op in found.ops] == pytest.approx([0.75, 0.25, 0.0])
    assert len(found.top(9)) == 2, "the iterator has no times"


def roofed(*ops):
    whole = profile(machine(2), ops, {})
    return analyse(msgspec.structs.replace(whole, roofs=roofs()))


def test_the_machine_s_own_roofs_by_type_of_number():
    double = keyed("MatMul(double[1000,1000],double[1000,1000])", 8 * MILLION, seconds={1: 20e-3})
    half = keyed("MatMul(half[1000,1000],half[1000,1000])", 2 * MILLION, seconds={1: 20e-3})
    found = roofed(matmul({1: 20e-3}), double, half)
    roof = found.roofline
    assert {dtype: of.rate for dtype, of in roof.dtypes.items()} == {
        "double": 256e9,
        "float": 512e9,
        "half": 512e9,
    }
    assert roof.compute == roof.dtypes["float"]
    shares = {op.op.key.split("(")[1][:4]: op.position.share for op in found.ops}
    assert shares == pytest.approx({"floa": 100 / 512, "doub": 100 / 256, "half": 100 / 512})
    assert roof.memory.rate == 64e9
    assert roof.caches == 32 * MILLION


@pytest.mark.parametrize(
    ("elements", "rate", "under"),
    [(10_000, 1000e9, "cache"), (200_000, 500e9, "cache"), (3 * MILLION, 200e9, "cache")],
)
def test_what_a_cache_holds_is_held_against_it(elements, rate, under):
    (op,) = roofed(relu(elements, {1: 1e-3})).ops
    assert op.position.under == under
    assert op.position.attainable == pytest.approx(rate / 8)


def test_beyond_the_caches_memory_bounds():
    (op,) = roofed(relu(100 * MILLION, {1: 50e-3})).ops
    assert op.position.under == "memory"
    assert op.position.attainable == pytest.approx(64e9 / 8)


def test_no_roof_is_lower_than_what_an_op_reached():
    found = roofed(matmul({1: 2e-3}))
    assert found.roofline.compute.rate == pytest.approx(1e12)
    assert found.roofline.compute.measured


def test_ceilings_are_told_by_type_and_level():
    found = list(op_tables.ceilings(roofed(matmul({1: 20e-3})).roofline))
    assert found == [
        "peak, compute float: 512 GFLOP/s (measured, float32 with AVX-512)",
        "peak, memory: 64 GB/s (measured, from memory)",
        "peak, L1: 1,000 GB/s (measured, from L1)",
        "peak, L2: 500 GB/s (measured, from L2)",
        "peak, L3: 200 GB/s (measured, from L3)",
    ]
