"""The arithmetic that is measured: which of a CPU's instructions, on numbers of which type."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dltune.schemas.roofs import DType


@dataclass(frozen=True)
class Kernel:
    """`name`: of the kernel in peaks.h. `flags`: what the kernel of the system calls what the CPU
    needs for it. `width`: operations of one instruction, by its registers' bits."""

    name: str
    dtype: DType
    instructions: str
    flags: frozenset[str]
    width: int


def _kernel(name: str, dtype: DType, instructions: str, flags: str, width: int) -> Kernel:
    return Kernel(name, dtype, instructions, frozenset(flags.split()), width)


# before FMA a multiplication and an addition are an instruction each
KERNELS = (
    _kernel("sse2_double", "float64", "SSE2", "sse2", 2),
    _kernel("avx_double", "float64", "AVX", "avx", 4),
    _kernel("fma_double", "float64", "AVX2 and FMA", "avx2 fma", 2 * 4),
    _kernel("avx512_double", "float64", "AVX-512", "avx512f", 2 * 8),
    _kernel("sse2_float", "float32", "SSE2", "sse2", 4),
    _kernel("avx_float", "float32", "AVX", "avx", 8),
    _kernel("fma_float", "float32", "AVX2 and FMA", "avx2 fma", 2 * 8),
    _kernel("avx512_float", "float32", "AVX-512", "avx512f", 2 * 16),
    _kernel("avx512_bf16", "bfloat16", "AVX512_BF16", "avx512f avx512_bf16", 2 * 32),
    _kernel("amx_bf16", "bfloat16", "AMX", "amx_tile amx_bf16", 2 * 16 * 16 * 32),
    _kernel("avx_vnni", "int8", "AVX_VNNI", "avx2 avx_vnni", 2 * 32),
    _kernel("avx512_vnni", "int8", "AVX512_VNNI", "avx512f avx512_vnni", 2 * 64),
    _kernel("amx_int8", "int8", "AMX", "amx_tile amx_int8", 2 * 16 * 16 * 64),
)


def usable(flags: Collection[str]) -> list[Kernel]:
    """Those that a CPU of these flags can run."""
    return [kernel for kernel in KERNELS if kernel.flags <= frozenset(flags)]


def streams(flags: Collection[str]) -> str:
    """The widest loads and stores of a CPU of these flags, as streams.h names them."""
    return next(
        name for name, flag in (("avx512", "avx512f"), ("avx", "avx"), ("sse2", ""))
        if not flag or flag in flags
    )  # fmt: skip
