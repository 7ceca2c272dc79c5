"""Shares of the time in which steps wait for data, and threads for storage."""

from __future__ import annotations

from dltune.analysis.step_parts import part, unrecorded
from dltune.findings.evidence import Evidence
from dltune.findings.python_samples import is_significant
from dltune.schemas.io import Process, Thread

# share of the time: of a wait that is a finding, and of a generator that dominates the pipeline
MIN_WAIT, MIN_GENERATOR = 0.05, 0.3
# share of the CPUs; with fewer idle CPUs, no data can be prepared during the steps
IDLE = 0.05
# seconds per step that the hand-over of a prepared element to the step takes
HAND_OVER = 4e-4
# seconds of the observation that the last report of a job does not cover, at most
UNREPORTED = 3.0


def input_share(evidence: Evidence) -> float:
    """Return the share of the wall time in which steps wait for data: the larger of their parts and
    the samples of Python code, because data are requested in a step or before it. Return 0 if both
    are unknown, or if the share of the samples is not significant."""
    python = evidence.python
    shares = python.shares if python else ()
    sampled = sum(share.share for share in shares if share.activity == "input")
    return max(sampled if is_significant(evidence, sampled) else 0.0, _in_steps(evidence))


def _in_steps(evidence: Evidence) -> float:
    return part(evidence.profile.profile, "input") if evidence.profile else 0.0


def preparation_share(evidence: Evidence) -> float | None:
    """Return the share of the wall time in which steps wait for the preparation of data, not for
    storage or a generator; None if it is too small. The share is at most the wait of the ops that
    request data, because samples include the calls of these ops."""
    observation = evidence.observation
    share = input_share(evidence) - (storage_share(evidence) or 0.0)
    # a wait that has not ended is unknown
    if observation and observation.graphs and observation.graphs.waited:
        waited = observation.graphs.waited / max(observation.seconds - UNREPORTED, UNREPORTED)
        share = min(share, max(waited, _in_steps(evidence)))
    python = evidence.python
    if share < MIN_WAIT or (python and python.generator >= MIN_GENERATOR):
        return None
    if evidence.profile and 0 < share * unrecorded(evidence.profile.profile) < HAND_OVER:
        return None
    return share


def longest_wait(evidence: Evidence) -> tuple[Process, Thread] | None:
    """Return the thread with the largest share of waits for storage, after its process."""
    return max(
        evidence.readers, key=lambda reader: reader[1].waiting / reader[1].seconds, default=None
    )


def main_thread_waits(evidence: Evidence) -> float:
    """Return the share of the time in which the main thread of the training process waits for
    storage. If the training process is unknown, the started process is used."""
    watch = evidence.watch
    watched = {process.pid for process in watch.processes} if watch else set()
    python = evidence.python
    waits = (
        thread.waiting / thread.seconds
        for process, thread in (watch.readers if watch else ())
        if thread.tid == process.pid
        and (process.pid == python.pid if python else process.parent not in watched)
    )
    return min(1.0, max(waits, default=0.0))


def storage_share(evidence: Evidence) -> float | None:
    """Return the highest cost of waits for storage, as a share of the job's time; None if unknown.

    The waits of the main thread cost all of their time. The waits of another thread cost at most
    the time for which steps wait for data.
    """
    longest = longest_wait(evidence)
    if longest is None:
        return None
    main = main_thread_waits(evidence)
    _, thread = longest
    waits = max(main, min(thread.waiting / thread.seconds, input_share(evidence)))
    return waits if main or evidence.profile or evidence.python else None
