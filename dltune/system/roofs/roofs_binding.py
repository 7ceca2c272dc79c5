"""The kernels of the roofs: built at first use, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_void_p
from pathlib import Path
from types import TracebackType

from dltune.native.binding import bound

SOURCES = [Path(__file__).with_name("roofs.cc")]
FLAGS = ("-pthread",)

_NANOSECOND = 1e-9
_LONGS, _CPUS = POINTER(c_int64), POINTER(c_int32)
# as roofs.cc's Refusal
_REFUSALS = {
    -1: "the C++ compiler does not support these instructions",
    -2: "a thread could not be pinned to its CPU",
    -3: "the kernel does not let this process use the AMX registers",
    -4: "not enough memory",
}


class Refused(Exception):
    """A case that cannot be measured here; the message is the reason."""


def _answered(took: int) -> float:
    if took in _REFUSALS:
        raise Refused(_REFUSALS[took])
    return max(took, 1) * _NANOSECOND


def peak(name: str, cpus: Sequence[int], rounds: int) -> tuple[float, int]:
    """Seconds of so many rounds of a kernel on each CPU at once, and the operations of them all.

    Raises Refused.
    """
    operations = c_int64()
    numbers = (c_int32 * len(cpus))(*cpus)
    took = load().dltune_roofs_peak(name.encode(), numbers, len(cpus), rounds, byref(operations))
    return _answered(took), operations.value


class Memory:
    """Arrays for each of some CPUs, of so many bytes, as long as the block lasts."""

    def __init__(self, cpus: Sequence[int], bytes_: Sequence[int]) -> None:
        """Raises Refused when there is no memory for them."""
        self._native = load()
        numbers = (c_int32 * len(cpus))(*cpus)
        self._memory = self._native.dltune_roofs_memory(
            numbers, len(cpus), (c_int64 * len(cpus))(*bytes_)
        )
        if not self._memory:
            raise Refused(_REFUSALS[-4])

    def stream(self, name: str, bytes_: Sequence[int], passes: int) -> tuple[float, int]:
        """Seconds of so many passes over so many bytes of each of the first CPUs at once, and the
        bytes moved by them all. Raises Refused."""
        moved = c_int64()
        took = self._native.dltune_roofs_stream(
            self._memory,
            name.encode(),
            len(bytes_),
            (c_int64 * len(bytes_))(*bytes_),
            passes,
            byref(moved),
        )
        return _answered(took), moved.value

    def __enter__(self) -> Memory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._native.dltune_roofs_release(self._memory)


@functools.cache
def load() -> ctypes.CDLL:
    """Raises DltuneError, with the compiler's last lines, when it cannot be built."""
    return bound(
        "roofs",
        SOURCES,
        "the benchmark of peak performance",
        {
            "dltune_roofs_peak": (c_int64, c_char_p, _CPUS, c_int32, c_int64, _LONGS),
            "dltune_roofs_memory": (c_void_p, _CPUS, c_int32, _LONGS),
            "dltune_roofs_release": (None, c_void_p),
            "dltune_roofs_stream": (
                c_int64, c_void_p, c_char_p, c_int32, _LONGS, c_int64, _LONGS,
            ),
        },
        flags=FLAGS,
    )  # fmt: skip
