"""The native part of the simulator: built at first use, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from ctypes import POINTER, c_double, c_int32, c_uint8, c_uint64
from pathlib import Path
from typing import Any

from dltune.native.binding import bound

INTEGERS, DOUBLES, WORDS = POINTER(c_int32), POINTER(c_double), POINTER(c_uint64)
CANDIDATES = 3  # as many as corun.h's kCandidates (section III-D)


def of(type_: Any, *names: str) -> Iterator[tuple[str, Any]]:
    """Fields of one type for a struct, as C declares them together."""
    return ((name, type_) for name in names)


class FifoOp(ctypes.Structure):
    """As in fifo.h."""

    _fields_ = (*of(c_double, "seconds", "busy"), ("threads", c_int32))


class Work(ctypes.Structure):
    """As engine.cc's CWork; index 0 of each array is strategy 2's choice."""

    _fields_ = (
        ("serial", c_double),
        ("seconds", c_double * (1 + CANDIDATES)),
        *of(c_int32 * (1 + CANDIDATES), "threads", "shared"),
        *of(c_int32, "count", "admitted", "detached"),
        ("cores", INTEGERS),
        ("placed", c_int32),
    )


class Graph(ctypes.Structure):
    """As engine.cc's CGraph, like those below that do not tell."""

    _fields_ = (("tasks", c_int32), *of(INTEGERS, "offsets", "edges", "op"), ("runs", DOUBLES))


class Cores(ctypes.Structure):
    _fields_ = (
        ("count", c_int32),
        *of(INTEGERS, "tile", "hardware"),
        ("smt_throughput", c_double),
    )


class Fifo(ctypes.Structure):
    _fields_ = (
        ("ops", POINTER(FifoOp)),
        *of(c_int32, "cores", "inter"),
        *of(c_double, "overhead", "oversubscription", "crowding"),
    )


class Corun(ctypes.Structure):
    _fields_ = (
        ("ops", POINTER(Work)),
        *of(c_int32, "count", "inter"),
        *of(c_double, "overhead", "crowding"),
        *of(c_int32, "corun", "hyperthreads"),
    )


class Link(ctypes.Structure):
    """As in network.h."""

    _fields_ = (*of(c_double, "bandwidth", "latency"), *of(c_int32, "channels", "by_priority"))


class Resources(ctypes.Structure):
    _fields_ = (
        ("where", INTEGERS),
        *of(DOUBLES, "bytes", "priority"),
        ("cores", POINTER(Fifo)),
        ("links", POINTER(Link)),
        *of(c_int32, "core_sets", "link_count"),
    )


class Network(ctypes.Structure):
    """As in network.h."""

    _fields_ = (*of(INTEGERS, "sender", "receiver"), *of(c_int32, "channels", "hosts"))


class Cluster(ctypes.Structure):
    _fields_ = (
        ("where", INTEGERS),
        *of(DOUBLES, "seconds", "priority"),
        ("cores", POINTER(Fifo)),
        ("network", Network),
        ("core_sets", c_int32),
    )


class Timeline(ctypes.Structure):
    _fields_ = (
        *of(DOUBLES, "start", "end"),
        *of(c_double, "makespan", "corunning"),
        ("done", c_int32),
    )


class Places(ctypes.Structure):
    _fields_ = (("held", WORDS), ("words", c_int32), ("second", POINTER(c_uint8)))


@functools.cache
def load() -> ctypes.CDLL:
    """Raises DltuneError, with the compiler's last lines, when it cannot be built."""
    graph, timeline, cores = POINTER(Graph), POINTER(Timeline), POINTER(Cores)
    return bound(
        "simulate",
        [Path(__file__).with_name("engine.cc")],
        "the simulator",
        {
            "dltune_fifo": (None, graph, POINTER(Fifo), timeline),
            "dltune_resources": (None, graph, POINTER(Resources), timeline),
            "dltune_cluster": (None, graph, POINTER(Cluster), timeline),
            "dltune_corun": (None, graph, cores, POINTER(Corun), POINTER(Places), timeline),
        },
        *(
            Work,
            FifoOp,
            Graph,
            Cores,
            Fifo,
            Corun,
            Link,
            Resources,
            Network,
            Cluster,
            Timeline,
            Places,
        ),
        remedy="install a C++17 compiler: dltune plan needs the simulator, dltune profile does not",
    )
