"""The native part of the simulation and search of strategies: built at first use, called through
ctypes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from ctypes import POINTER, c_double, c_int32, c_int64, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from dltune.native.binding import bound

DIMENSIONS = 4  # as division.h's kDimensions
INTEGERS, LONGS, DOUBLES = POINTER(c_int32), POINTER(c_int64), POINTER(c_double)


def of(type_: Any, *names: str) -> Iterator[tuple[str, Any]]:
    return ((name, type_) for name in names)


class Region(ctypes.Structure):
    """Mirrors division.h, like those below up to ProblemAbout."""

    _fields_ = (*of(c_int32, "extent", "of", "stride", "start"),)


class Edge(ctypes.Structure):
    _fields_ = (*of(c_int32, "producer", "consumer"), ("regions", Region * DIMENSIONS))


class Division(ctypes.Structure):
    _fields_ = (
        ("degrees", c_int32 * DIMENSIONS),
        *of(c_int32, "replicas", "start"),
        ("order", c_int32 * (DIMENSIONS + 1)),
        ("stride", c_int32),
    )


class OperatorAbout(ctypes.Structure):
    _fields_ = (
        ("size", c_int32 * DIMENSIONS),
        *of(c_int32, "parameter", "weights", "element", "gradient", "block"),
        *of(c_int32, "first_configuration", "configurations"),
        ("first_time", c_int64),
    )


class ProblemAbout(ctypes.Structure):
    _fields_ = (
        *of(c_int32, "devices", "kinds", "resources", "operators", "edges", "weights", "blocks"),
        *of(c_double, "update_per_byte", "all_reduce", "all_to_all"),
        *of(INTEGERS, "kind", "host", "channel"),
        ("latency", LONGS),
        ("per_byte", DOUBLES),
        ("operator_", POINTER(OperatorAbout)),
        ("edge", POINTER(Edge)),
        ("configuration", POINTER(Division)),
        *of(LONGS, "forward", "backward"),
        ("weight_bytes", DOUBLES),
    )


class SearchAbout(ctypes.Structure):
    """Mirrors search.h, like Outcome and Improvement."""

    _fields_ = (
        ("seed", c_uint64),
        *of(c_double, "temperature", "seconds"),
        ("proposals", c_int64),
        *of(c_int32, "moves", "method"),
    )


class Outcome(ctypes.Structure):
    _fields_ = (
        *of(c_int64, "best", "current", "proposals", "simulated", "accepted"),
        *of(c_int64, "best_at", "settled"),
        ("seconds", c_double),
    )


class Limits(ctypes.Structure):
    """Mirrors branching.h, like Proof."""

    _fields_ = (("seconds", c_double), *of(c_int64, "nodes", "known"))


class Proof(ctypes.Structure):
    _fields_ = (*of(c_int64, "best", "bound", "nodes", "leaves"), ("seconds", c_double))


class Shown(ctypes.Structure):
    """Mirrors engine.cc, like Totals."""

    _fields_ = (
        *of(c_int32, "kind", "number", "back", "place", "part", "resource"),
        *of(c_int64, "ready", "start", "end", "bytes"),
    )


class Totals(ctypes.Structure):
    _fields_ = (
        *of(c_int64, "compute", "forward_bytes", "backward_bytes"),
        *of(c_int64, "weight_bytes", "tasks", "load"),
    )


@functools.cache
def load() -> ctypes.CDLL:
    """Raises DltuneError, with the compiler's last lines, when it cannot be built."""
    search = (POINTER(SearchAbout), POINTER(Outcome), INTEGERS)
    proof = (c_int32, POINTER(Limits), POINTER(Proof), INTEGERS)
    pairs = (c_int32, INTEGERS, c_int32, INTEGERS)
    return bound(
        "parallelism",
        [Path(__file__).with_name("engine.cc")],
        "the parallelism simulator",
        {
            "dltune_parallelism_new": (c_void_p, POINTER(ProblemAbout)),
            "dltune_parallelism_delete": (None, c_void_p),
            "dltune_parallelism_set": (None, c_void_p, INTEGERS),
            "dltune_parallelism_get": (None, c_void_p, INTEGERS),
            "dltune_parallelism_change": (None, c_void_p, c_int32, c_int32),
            "dltune_parallelism_simulate": (c_int64, c_void_p),
            "dltune_parallelism_delta": (c_int64, c_void_p, c_int32, c_int32),
            "dltune_parallelism_timeline": (POINTER(Shown), c_void_p, c_int32, LONGS),
            "dltune_parallelism_totals": (None, c_void_p, POINTER(Totals)),
            "dltune_parallelism_search": (None, c_void_p, *search),
            "dltune_parallelism_prove": (None, c_void_p, *proof),
            "dltune_parallelism_alone": (None, c_void_p, c_int32, c_int32, LONGS),
            "dltune_parallelism_added": (None, c_void_p, c_int32, LONGS),
            "dltune_parallelism_moved": (None, c_void_p, c_int32, *pairs, LONGS),
        },
        *(Region, Edge, Division, OperatorAbout, ProblemAbout),
        *(SearchAbout, Outcome, Limits, Proof, Shown, Totals),
        flags=("-ffp-contract=off",),
    )
