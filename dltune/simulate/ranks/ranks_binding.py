"""The native part of the simulation of ranks: built at first use, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_double, c_int, c_int32, c_int64, c_uint64, c_void_p
from pathlib import Path

from dltune.native.binding import bound

_doubles, _ints = POINTER(c_double), POINTER(c_int32)

# The slow oracle of the tests rounds as this does only where nothing is fused.
FLAGS = ("-ffp-contract=off",)


class Slice(ctypes.Structure):
    """As in engine.h, like those below."""

    _fields_ = (("rank", c_int32), ("doing", c_int32), ("start", c_double), ("end", c_double))


class Quantiles(ctypes.Structure):
    _fields_ = (("points", c_int32), ("share", _doubles), ("value", _doubles))


class Job(ctypes.Structure):
    _fields_ = (
        ("ranks", c_int32),
        ("pool_ranks", c_int32),
        ("cores", c_double),
        ("tensors", c_int32),
        ("phases", c_int32),
        ("bytes", _doubles),
        ("seconds", _doubles),
        ("threads", _doubles),
        ("ready", _ints),
        ("start", c_double),
        ("per_byte", c_double),
        ("copy_per_byte", c_double),
        ("few_bytes", c_double),
        ("sync", c_double),
        ("cycle_time", c_double),
        ("fusion_threshold", c_double),
        ("cycle_seconds", c_double),
        ("request", c_double),
        ("test", c_double),
        ("cache", c_int32),
        ("wake", Quantiles),
        ("wake_busy", Quantiles),
        ("answer", Quantiles),
        ("answer_busy", Quantiles),
        ("jitter", Quantiles),
        ("input_seconds", c_double),
        ("input_threads", c_double),
        ("synchronizing", c_double),
        ("transferring", c_double),
        ("answers", c_int32),
        ("offloaded", c_int32),
    )


class Method(ctypes.Structure):
    _fields_ = (
        ("agree_every", c_int32),
        ("between_tests", c_double),
        ("reserved", c_double),
        ("input_cores", c_double),
        ("bins", c_int32),
        ("bin", _ints),
        ("synchronized", c_int32),
        ("rest", c_double),
    )


class Totals(ctypes.Structure):
    _fields_ = (
        ("compute", c_double),
        ("slowest", c_double),
        ("transfer", c_double),
        ("background", c_double),
        ("oversleep", c_double),
        ("worst_oversleep", c_double),
        ("cycles", c_int64),
        ("empty", c_int64),
        ("batches", c_int64),
        ("sleeps", c_int64),
    )


@functools.cache
def load() -> ctypes.CDLL:
    """Raises DltuneError, with the compiler's last lines, when it cannot be built."""
    job, method, totals = POINTER(Job), POINTER(Method), POINTER(Totals)
    run = (job, method, c_int, c_int, c_uint64, c_int, _doubles, totals)
    return bound(
        "ranks",
        [Path(__file__).with_name("engine.cc")],
        "the simulator of ranks",
        {
            "dltune_ranks_run": (c_void_p, *run),
            "dltune_ranks_slices": (POINTER(Slice), c_void_p, POINTER(c_int64)),
            "dltune_ranks_delete": (None, c_void_p),
        },
        *(Slice, Quantiles, Job, Method, Totals),
        flags=FLAGS,
    )
