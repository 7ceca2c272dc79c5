"""The few native lines of the binding, built on first use."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_uint64, c_void_p
from functools import cache
from pathlib import Path

from dltune.native.binding import bound


@cache
def load() -> ctypes.CDLL:
    """Raises DltuneError, with the compiler's last lines, when it cannot be built."""
    return bound(
        "perf",
        [Path(__file__).with_name("native.cc")],
        "the reader of counters",
        {"dltune_rdpmc": (c_int, c_void_p, c_void_p), "dltune_loop": (c_int, c_uint64)},
    )
