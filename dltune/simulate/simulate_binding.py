"""The native part of the simulator: built at first use, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_double, c_int, c_int32, c_uint8, c_uint64, c_void_p
from pathlib import Path

from dltune.native.binding import bound

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
    graph, timeline, cores = POINTER(Graph), POINTER(Timeline), POINTER(Cores)
    decided = (WORDS, INTEGERS, DOUBLES, POINTER(c_uint8), WORDS, c_int)
    return bound(
        "simulate",
        [Path(__file__).with_name("engine.cc")],
        "the simulator",
        {
            "dltune_fifo": (c_int, graph, POINTER(Fifo), timeline),
            "dltune_resources": (c_int, graph, POINTER(Resources), timeline),
            "dltune_corun": (c_int, graph, cores, POINTER(Corun), timeline, POINTER(Places)),
            "dltune_scheduler_new": (c_void_p, cores, c_int, c_int),
            "dltune_scheduler_delete": (None, c_void_p),
            "dltune_scheduler_avoid": (None, c_void_p, c_int, c_int),
            "dltune_scheduler_avoided": (c_int, c_void_p, c_int, c_int),
            "dltune_scheduler_ready": (None, c_void_p, c_uint64, POINTER(Work)),
            "dltune_scheduler_finished": (None, c_void_p, c_uint64, c_double),
            "dltune_scheduler_decide": (c_int, c_void_p, c_double, c_int, *decided),
        },
        *(Work, FifoOp, Graph, Cores, Fifo, Corun, Link, Resources, Timeline, Places),
        remedy="profiles can be taken without it; planning needs a C++17 compiler",
    )
