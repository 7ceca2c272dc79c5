from __future__ import annotations

from dltune.system.roofs.measure import KERNELS, streams, usable

OLD = {"sse2"}
HASWELL = {"sse2", "avx", "avx2", "fma"}
TURIN = HASWELL | {"avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni"}
SAPPHIRE_RAPIDS = TURIN | {"amx_tile", "amx_bf16", "amx_int8"}


def instructions(flags):
    return {kernel.instructions for kernel in usable(flags)}


def test_a_cpu_runs_what_its_flags_allow():
    assert instructions(OLD) == {"SSE2"}
    assert instructions(HASWELL) == {"SSE2", "AVX", "AVX2 and FMA"}
    assert "AMX" not in instructions(TURIN)
    assert instructions(SAPPHIRE_RAPIDS) - instructions(TURIN) == {"AMX"}


def test_fma_alone_is_not_enough():
    assert instructions({"sse2", "avx", "fma"}) == {"SSE2", "AVX"}


def test_types_that_a_cpu_does_not_compute_with_have_no_kernel():
    assert {kernel.dtype for kernel in usable(HASWELL)} == {"float64", "float32"}
    assert {kernel.dtype for kernel in usable(TURIN)} == {"float64", "float32", "bfloat16", "int8"}


def test_widths_follow_from_registers():
    """A product with a sum is two operations for each number that a register holds."""
    width = {(kernel.dtype, kernel.instructions): kernel.width for kernel in KERNELS}
    assert width["float64", "AVX-512"] == 2 * 512 // 64
    assert width["float32", "AVX-512"] == 2 * 512 // 32
    assert width["int8", "AVX512_VNNI"] == 2 * 512 // 8
    assert width["float32", "AVX"] == 256 // 32, "an instruction for each of the two"


def test_memory_is_read_by_the_widest_loads():
    assert [streams(flags) for flags in (OLD, HASWELL, TURIN)] == ["sse2", "avx", "avx512"]
