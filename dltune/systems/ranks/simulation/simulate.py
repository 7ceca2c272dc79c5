"""Simulation of a job's steps under a method, its result, and its trace.

The hot loop is in engine.cc.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from ctypes import c_double, c_int32
from dataclasses import dataclass
from typing import Any, Literal

from dltune.systems.ranks.simulation import ranks_binding as binding
from dltune.systems.ranks.simulation.job import Job, Method, Quantiles

# Activities of a rank: its background thread sleeps, oversleeps (should run and does not), waits
# for the other ranks, transfers; the rank computes, reads its next batch.
Doing = Literal["sleep", "oversleep", "wait", "transfer", "compute", "input"]
DOINGS: tuple[Doing, ...] = ("sleep", "oversleep", "wait", "transfer", "compute", "input")


@dataclass(frozen=True)
class Slice:
    """A rank does this from `start` to `end`, in seconds since the simulation began."""

    rank: int
    doing: Doing
    start: float
    end: float


@dataclass(frozen=True)
class Outcome:
    """Figures of the counted steps alone (warm-up left out); means over ranks and steps, in
    seconds.

    `steps`: from one step's last transfer to the next one's. `compute`: until a rank's last tensor
    was ready; `slowest`: until that of the last rank was. The rest of a step is the wait for its
    background threads; `transfer`: of that or under it, collectives under way. `background`: CPU
    seconds per second of one background thread. `cycles` of a rank, of which in `empty` nothing was
    transferred; a wake-up for a bin is a cycle. `batches`: collectives of gradients. `oversleep`:
    mean and worst of a thread that had slept, its number in `sleeps`. `slices`: activities of the
    drawn ranks.
    """

    method: str
    steps: tuple[float, ...]
    compute: float
    slowest: float
    transfer: float
    background: float
    cycles: int
    empty: int
    batches: int
    sleeps: int
    oversleep: float
    worst_oversleep: float
    slices: tuple[Slice, ...] = ()

    @property
    def seconds(self) -> float:
        """Mean step time."""
        return math.fsum(self.steps) / len(self.steps)

    @property
    def exposed(self) -> float:
        """Seconds of a step after the last rank's last tensor was ready."""
        return self.seconds - self.slowest

    @property
    def cycle_rate(self) -> float:
        """Cycles per second of a rank."""
        return self.cycles / math.fsum(self.steps)

    @property
    def empty_share(self) -> float:
        return self.empty / self.cycles if self.cycles else 0.0

    @property
    def batches_per_step(self) -> float:
        return self.batches / len(self.steps)


def simulate(
    job: Job, method: Method, *, steps: int, seed: int, warmup: int = 3, drawn: int = 0
) -> Outcome:
    """`steps` steps of `job` under `method`, after `warmup` that are not counted.

    The first step fills the response cache. The same `seed` gives the same outcome; `jitter` is
    the same under every method then, oversleep is drawn anew for each sleep. `drawn`: of how many
    ranks to tell what they did.
    Raises ValueError when the method does not fit the job.
    """
    if steps < 1 or warmup < 0:
        raise ValueError(f"{steps} steps after {warmup} cannot be simulated")
    check(job, method)
    native = binding.load()
    ends = (c_double * (steps + warmup))()
    totals = binding.Totals()
    simulation = native.dltune_ranks_run(
        _job(job), _method(method), steps, warmup, seed & (1 << 64) - 1, drawn, ends, totals
    )
    try:
        count = ctypes.c_int64()
        found = native.dltune_ranks_slices(simulation, count)
        slices = tuple(Slice(s.rank, DOINGS[s.doing], s.start, s.end) for s in found[: count.value])
    finally:
        native.dltune_ranks_delete(simulation)
    moments = [0.0, *ends][warmup:]
    return Outcome(
        method=method.name,
        steps=tuple(b - a for a, b in itertools.pairwise(moments)),
        compute=totals.compute / steps / job.ranks,
        slowest=totals.slowest / steps,
        transfer=totals.transfer / steps,
        background=totals.background / job.ranks / (moments[-1] - moments[0]),
        cycles=totals.cycles,
        empty=totals.empty,
        batches=totals.batches,
        sleeps=totals.sleeps,
        oversleep=totals.oversleep / totals.sleeps if totals.sleeps else 0.0,
        worst_oversleep=totals.worst_oversleep,
        slices=slices,
    )


def check(job: Job, method: Method) -> None:
    """Raises ValueError when the method does not fit the job."""
    kept = method.reserved + method.input_cores
    if kept >= job.pool.cores:
        raise ValueError(f"{kept} of {job.pool.cores} cores reserved leave none")
    if method.bins is not None:
        placed = sorted(tensor for bin_ in method.bins for tensor in bin_)
        if placed != list(range(len(job.tensors))) or not all(method.bins):
            raise ValueError("bins hold each tensor once, and none is empty")


def _job(job: Job) -> binding.Job:
    phase_of = {tensor: index for index, phase in enumerate(job.phases) for tensor in phase.tensors}
    network = job.network
    answers = job.answers or (job.wake, job.wake_busy)
    return binding.Job(
        ranks=job.ranks,
        pool_ranks=job.pool.ranks,
        cores=job.pool.cores,
        tensors=len(job.tensors),
        phases=len(job.phases),
        bytes=_doubles(job.tensors),
        seconds=_doubles([phase.seconds for phase in job.phases]),
        threads=_doubles([phase.threads for phase in job.phases]),
        ready=_in_order(phase_of),
        updates=len(job.updates),
        update_seconds=_doubles([update.seconds for update in job.updates]),
        update_threads=_doubles([update.threads for update in job.updates]),
        update_begin=_integers(
            [0, *itertools.accumulate(len(update.tensors) for update in job.updates)]
        ),
        update_tensors=_integers([tensor for update in job.updates for tensor in update.tensors]),
        start=network.start(job.ranks),
        per_byte=network.per_byte(job.ranks),
        copy_per_byte=2 / network.copy,
        few_bytes=network.few_bytes(job.ranks),
        sync=job.synchronization,
        cycle_time=job.cycle_time,
        fusion_threshold=job.fusion_threshold,
        cycle_seconds=job.cycle_seconds,
        request=job.request,
        test=job.test,
        # least recently used is evicted first: one tensor too many, and none is found again
        cache=0 if job.cache_capacity == 0 else 1 + (job.cache_capacity >= len(job.tensors)),
        wake=_quantiles(job.wake),
        wake_busy=_quantiles(job.wake_busy),
        answer=_quantiles(answers[0]),
        answer_busy=_quantiles(answers[1]),
        jitter=_quantiles(job.jitter),
        input_seconds=job.input_seconds,
        input_threads=job.input_threads,
        synchronizing=job.waiting.synchronizing,
        transferring=job.waiting.transferring,
        answers=job.answers is not None,
        offloaded=job.offloaded,
    )


def _method(method: Method) -> binding.Method:
    bins = method.bins or ()
    return binding.Method(
        agree_every=method.agree_every or 0,
        between_tests=method.between_tests or 0.0,
        reserved=method.reserved,
        input_cores=method.input_cores,
        bins=len(bins),
        bin=_in_order({tensor: index for index, bin_ in enumerate(bins) for tensor in bin_}),
        synchronized=method.synchronized,
        rest=method.rest or 0.0,
    )


def _quantiles(quantiles: Quantiles) -> binding.Quantiles:
    shares, values = zip(*quantiles.points, strict=True)
    return binding.Quantiles(len(shares), _doubles(shares), _doubles(values))


def _in_order(of_tensor: Mapping[int, int]) -> ctypes.Array[c_int32]:
    return _integers([of_tensor[tensor] for tensor in sorted(of_tensor)])


def _integers(values: Sequence[int]) -> ctypes.Array[c_int32]:
    return (c_int32 * len(values))(*values)


def _doubles(values: Sequence[float]) -> ctypes.Array[c_double]:
    return (c_double * len(values))(*values)


# a rank is a process; its background thread is one row, what it works for are two more
_NAMES = {1: "background thread", 2: "computing", 3: "input pipeline"}
_ROWS: dict[Doing, int] = {
    **dict.fromkeys(("sleep", "oversleep", "wait", "transfer"), 1),
    "compute": 2,
    "input": 3,
}


def trace(simulations: Mapping[str, Sequence[Slice]]) -> bytes:
    """A row for each rank's background thread, computing and input pipeline, under each title.

    Moments are whole nanoseconds, so that one slice ends where the next begins.

    It shows the activity of simulated ranks, for Perfetto and chrome://tracing (Chrome's JSON trace
    format).
    """
    events: list[dict[str, Any]] = []
    # not a row's number: Perfetto takes the thread with its process's for its main one
    process = max(_NAMES)
    for title, slices in simulations.items():
        processes: dict[int, int] = {}
        for rank in sorted({piece.rank for piece in slices}):
            process += 1
            processes[rank] = process
            events.append(_named("process_name", process, 0, f"{title}: rank {rank}"))
            events += [_named("thread_name", process, row, name) for row, name in _NAMES.items()]
        for piece in slices:
            start, end = round(piece.start * 1e9), round(piece.end * 1e9)
            if end > start:
                events.append(
                    {
                        "ph": "X",
                        "name": piece.doing,
                        "cat": "simulated",
                        "pid": processes[piece.rank],
                        "tid": _ROWS[piece.doing],
                        "ts": start / 1e3,
                        "dur": (end - start) / 1e3,
                    }
                )
    text = json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, separators=(",", ":"))
    return text.encode()


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}
