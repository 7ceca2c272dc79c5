"""The native part of the simulation of ranks: built at first use, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_double, c_int, c_int32, c_int64, c_uint64, c_void_p
from pathlib import Path

from dltune.native.binding import bound
from dltune.simulate.simulate_binding import DOUBLES, INTEGERS, of

# The slow oracle of the tests rounds as this does only where nothing is fused.
FLAGS = ("-ffp-contract=off",)


class Slice(ctypes.Structure):
    """As in engine.cc, like those below."""

    _fields_ = (*of(c_int32, "rank", "doing"), *of(c_double, "start", "end"))


class Quantiles(ctypes.Structure):
    _fields_ = (("points", c_int32), *of(DOUBLES, "share", "value"))


class Job(ctypes.Structure):
    _fields_ = (
        *of(c_int32, "ranks", "pool_ranks"),
        ("cores", c_double),
        *of(c_int32, "tensors", "phases"),
        *of(DOUBLES, "bytes", "seconds", "threads"),
        ("ready", INTEGERS),
        ("updates", c_int32),
        *of(DOUBLES, "update_seconds", "update_threads"),
        *of(INTEGERS, "update_begin", "update_tensors"),
        *of(c_double, "start", "per_byte", "copy_per_byte"),
        *of(c_double, "few_bytes", "sync"),
        *of(c_double, "cycle_time", "fusion_threshold", "cycle_seconds", "request", "test"),
        ("cache", c_int32),
        *of(Quantiles, "wake", "wake_busy", "answer", "answer_busy", "jitter"),
        *of(c_double, "input_seconds", "input_threads"),
        *of(c_double, "synchronizing", "transferring"),
        *of(c_int32, "answers", "offloaded"),
    )


class Method(ctypes.Structure):
    _fields_ = (
        ("agree_every", c_int32),
        *of(c_double, "between_tests", "reserved", "input_cores"),
        ("bins", c_int32),
        ("bin", INTEGERS),
        ("synchronized", c_int32),
        ("rest", c_double),
    )


class Totals(ctypes.Structure):
    _fields_ = (
        *of(c_double, "compute", "slowest", "transfer", "background"),
        *of(c_double, "oversleep", "worst_oversleep"),
        *of(c_int64, "cycles", "empty", "batches", "sleeps"),
    )


@functools.cache
def load() -> ctypes.CDLL:
    """Raises DltuneError, with the compiler's last lines, when it cannot be built."""
    job, method, totals = POINTER(Job), POINTER(Method), POINTER(Totals)
    run = (job, method, c_int, c_int, c_uint64, c_int, DOUBLES, totals)
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
