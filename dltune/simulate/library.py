"""The native part of the simulator: built at first use, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_double, c_int, c_int32, c_uint8, c_uint64, c_void_p
from pathlib import Path

from dltune.errors import DltuneError
from dltune.native.build import BuildError, library

CANDIDATES = 3  # as many as corun.h's kCandidates (section III-D)


class FifoOp(ctypes.Structure):
    """As in fifo.h."""

    _fields_ = (("seconds", c_double), ("busy", c_double), ("threads", c_int32))


class Work(ctypes.Structure):
    """As engine.cc's CWork; index 0 of each array is strategy 2's choice."""

    _fields_ = (
        ("op", c_int32),
        ("count", c_int32),
        ("serial", c_double),
        ("seconds", c_double * (1 + CANDIDATES)),
        ("threads", c_int32 * (1 + CANDIDATES)),
        ("shared", c_int32 * (1 + CANDIDATES)),
        ("admitted", c_int32),
        ("detached", c_int32),
    )


@functools.cache
def load() -> ctypes.CDLL:
    """Raises DltuneError, with the compiler's last lines, when it cannot be built."""
    here = Path(__file__).parent
    sources = [here / "engine.cc", here.parent / "native" / "corun.h"]
    try:
        native = ctypes.CDLL(str(library("simulate", sources)))
    except BuildError as error:
        raise DltuneError(
            f"the simulator could not be built: {error}",
            remedy="profiles can be taken without it; planning needs a C++17 compiler",
        ) from None
    doubles, ints, words = POINTER(c_double), POINTER(c_int32), POINTER(c_uint64)
    graph = (c_int, ints, ints, ints, doubles)
    native.dltune_fifo.argtypes = (
        *graph,
        POINTER(FifoOp),
        c_int,
        c_int,
        c_double,
        c_double,
        c_double,
        doubles,
        doubles,
        doubles,
    )
    native.dltune_corun.argtypes = (
        *graph,
        c_int,
        POINTER(Work),
        c_int,
        ints,
        ints,
        c_int,
        c_double,
        c_double,
        c_int,
        c_int,
        c_double,
        doubles,
        doubles,
        doubles,
        words,
        c_int,
        POINTER(c_uint8),
    )
    native.dltune_scheduler_new.argtypes = (ints, ints, c_int, c_int, c_int, c_double)
    native.dltune_scheduler_new.restype = c_void_p
    native.dltune_scheduler_delete.argtypes = (c_void_p,)
    native.dltune_scheduler_delete.restype = None
    native.dltune_scheduler_avoid.argtypes = (c_void_p, c_int, c_int)
    native.dltune_scheduler_avoid.restype = None
    native.dltune_scheduler_avoided.argtypes = (c_void_p, c_int, c_int)
    native.dltune_scheduler_ready.argtypes = (c_void_p, c_uint64, POINTER(Work))
    native.dltune_scheduler_ready.restype = None
    native.dltune_scheduler_finished.argtypes = (c_void_p, c_uint64, c_double)
    native.dltune_scheduler_finished.restype = None
    native.dltune_scheduler_decide.argtypes = (
        c_void_p,
        c_double,
        c_int,
        words,
        ints,
        doubles,
        POINTER(c_uint8),
        words,
        c_int,
    )
    return native
