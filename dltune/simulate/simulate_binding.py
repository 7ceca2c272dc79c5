"""The native part of the simulator: built at first use, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_double, c_int, c_int32, c_uint8, c_uint64, c_void_p
from pathlib import Path

from dltune.errors import DltuneError
from dltune.native.build import BuildError, library
from dltune.native.mirrored import require_sizes

INTEGERS, DOUBLES, WORDS = POINTER(c_int32), POINTER(c_double), POINTER(c_uint64)
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
        ("cores", INTEGERS),
        ("placed", c_int32),
    )


class Graph(ctypes.Structure):
    """As engine.cc's CGraph, like those below."""

    _fields_ = (
        ("tasks", c_int32),
        ("offsets", INTEGERS),
        ("edges", INTEGERS),
        ("op", INTEGERS),
        ("runs", DOUBLES),
    )


class Cores(ctypes.Structure):
    _fields_ = (
        ("count", c_int32),
        ("tile", INTEGERS),
        ("hardware", INTEGERS),
        ("smt_throughput", c_double),
    )


class Fifo(ctypes.Structure):
    _fields_ = (
        ("ops", POINTER(FifoOp)),
        ("cores", c_int32),
        ("inter", c_int32),
        ("overhead", c_double),
        ("oversubscription", c_double),
        ("crowding", c_double),
    )


class Corun(ctypes.Structure):
    _fields_ = (
        ("ops", POINTER(Work)),
        ("count", c_int32),
        ("inter", c_int32),
        ("overhead", c_double),
        ("crowding", c_double),
        ("corun", c_int32),
        ("hyperthreads", c_int32),
    )


class Link(ctypes.Structure):
    """As in link.h."""

    _fields_ = (
        ("bandwidth", c_double),
        ("latency", c_double),
        ("channels", c_int32),
        ("by_priority", c_int32),
    )


class Resources(ctypes.Structure):
    _fields_ = (
        ("where", INTEGERS),
        ("bytes", DOUBLES),
        ("priority", DOUBLES),
        ("cores", POINTER(Fifo)),
        ("links", POINTER(Link)),
        ("core_sets", c_int32),
        ("link_count", c_int32),
    )


class Timeline(ctypes.Structure):
    _fields_ = (
        ("start", DOUBLES),
        ("end", DOUBLES),
        ("makespan", c_double),
        ("corunning", c_double),
    )


class Places(ctypes.Structure):
    _fields_ = (("held", WORDS), ("words", c_int32), ("second", POINTER(c_uint8)))


@functools.cache
def load() -> ctypes.CDLL:
    """Raises DltuneError, with the compiler's last lines, when it cannot be built."""
    here = Path(__file__).parent
    shared = here.parent / "native"
    sources = [here / "engine.cc", shared / "corun.h", shared / "mirrored.h"]
    try:
        native = ctypes.CDLL(str(library("simulate", sources)))
    except BuildError as error:
        raise DltuneError(
            f"the simulator could not be built: {error}",
            remedy="profiles can be taken without it; planning needs a C++17 compiler",
        ) from None
    require_sizes(
        native, Work, FifoOp, Graph, Cores, Fifo, Corun, Link, Resources, Timeline, Places
    )
    graph, timeline = POINTER(Graph), POINTER(Timeline)
    native.dltune_fifo.argtypes = (graph, POINTER(Fifo), timeline)
    native.dltune_resources.argtypes = (graph, POINTER(Resources), timeline)
    native.dltune_corun.argtypes = (
        graph,
        POINTER(Cores),
        POINTER(Corun),
        timeline,
        POINTER(Places),
    )
    native.dltune_scheduler_new.argtypes = (POINTER(Cores), c_int, c_int)
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
        WORDS,
        INTEGERS,
        DOUBLES,
        POINTER(c_uint8),
        WORDS,
        c_int,
    )
    return native
