"""The few native lines of the binding, built on first use."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from dltune.errors import UsageError
from dltune.native import build

_SOURCE = Path(__file__).with_name("native.cc")


@cache
def load() -> ctypes.CDLL:
    """Raises UsageError when it cannot be built."""
    try:
        loaded = ctypes.CDLL(str(build.library("perf", [_SOURCE])))
    except build.BuildError as error:
        raise UsageError(str(error)) from None
    loaded.dltune_rdpmc.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    loaded.dltune_loop.argtypes = [ctypes.c_uint64]
    return loaded
