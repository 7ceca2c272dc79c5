"""Simulate the steps of a job under a method (the hot loop is engine.h)."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from ctypes import c_double, c_int32

from dltune.simulate.ranks import ranks_binding as binding
from dltune.simulate.ranks.job import Job
from dltune.simulate.ranks.method import Method
from dltune.simulate.ranks.outcome import DOINGS, Outcome, Slice
from dltune.simulate.ranks.quantiles import Quantiles


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
    kept: list[object] = []  # what the structures point to
    native = binding.load()
    ends = (c_double * (steps + warmup))()
    totals = binding.Totals()
    simulation = native.dltune_ranks_run(
        _job(job, kept),
        _method(job, method, kept),
        steps,
        warmup,
        seed & (1 << 64) - 1,
        drawn,
        ends,
        totals,
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


def _job(job: Job, kept: list[object]) -> binding.Job:
    ready = [0] * len(job.tensors)
    for index, phase in enumerate(job.phases):
        for tensor in phase.tensors:
            ready[tensor] = index
    network = job.network
    answers = job.answers or (job.wake, job.wake_busy)
    return binding.Job(
        ranks=job.ranks,
        pool_ranks=job.pool.ranks,
        cores=job.pool.cores,
        tensors=len(job.tensors),
        phases=len(job.phases),
        bytes=_doubles(job.tensors, kept),
        seconds=_doubles([phase.seconds for phase in job.phases], kept),
        threads=_doubles([phase.threads for phase in job.phases], kept),
        ready=_ints(ready, kept),
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
        wake=_quantiles(job.wake, kept),
        wake_busy=_quantiles(job.wake_busy, kept),
        answer=_quantiles(answers[0], kept),
        answer_busy=_quantiles(answers[1], kept),
        jitter=_quantiles(job.jitter, kept),
        input_seconds=job.input_seconds,
        input_threads=job.input_threads,
        synchronizing=job.waiting.synchronizing,
        transferring=job.waiting.transferring,
        answers=job.answers is not None,
        offloaded=job.offloaded,
    )


def _method(job: Job, method: Method, kept: list[object]) -> binding.Method:
    bin_of = [0] * len(job.tensors)
    for index, tensors in enumerate(method.bins or ()):
        for tensor in tensors:
            bin_of[tensor] = index
    return binding.Method(
        agree_every=method.agree_every or 0,
        between_tests=method.between_tests or 0.0,
        reserved=method.reserved,
        input_cores=method.input_cores,
        bins=len(method.bins or ()),
        bin=_ints(bin_of, kept),
        synchronized=method.synchronized,
        rest=method.rest or 0.0,
    )


def _quantiles(quantiles: Quantiles, kept: list[object]) -> binding.Quantiles:
    shares, values = zip(*quantiles.points, strict=True)
    return binding.Quantiles(len(shares), _doubles(shares, kept), _doubles(values, kept))


def _doubles(values: Sequence[float], kept: list[object]) -> ctypes.Array[c_double]:
    kept.append(array := (c_double * len(values))(*values))
    return array


def _ints(values: Sequence[int], kept: list[object]) -> ctypes.Array[c_int32]:
    kept.append(array := (c_int32 * len(values))(*values))
    return array
