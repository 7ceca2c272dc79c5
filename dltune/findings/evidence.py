"""The evidence of a job: its documents, and the shares of time that rules derive from them.

Rules derive findings from these measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from dltune.analysis.step_parts import part, unrecorded
from dltune.schemas.diagnosis import Activity, Observation, Share
from dltune.schemas.io import Process, Thread

if TYPE_CHECKING:
    from dltune.analysis.roofline import Analysis
    from dltune.schemas.diagnosis import Graphs, Python
    from dltune.schemas.diagnosis import Process as JobProcess
    from dltune.schemas.io import (
        DataFile,
        Experiment,
        Io,
        Watch,
    )


T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True)
class Evidence:
    """The documents of one job; None for a document that was not made. A rule without the documents
    that it needs yields no finding. `reports`: documents of systems and other packages, one of each
    kind at most."""

    observation: Observation | None = None
    profile: Analysis | None = None
    io: Io | None = None
    reports: tuple[msgspec.Struct, ...] = ()

    @property
    def framework(self) -> str | None:
        """The framework of the job, as documents name it; None if it is unknown."""
        if self.profile:
            return self.profile.profile.framework.name
        return self.main.framework if self.main else None

    @property
    def main(self) -> JobProcess | None:
        """The process that trains."""
        return self.observation.main if self.observation else None

    @property
    def python(self) -> Python | None:
        """The samples of the main thread."""
        return self.observation.python if self.observation else None

    @property
    def graphs(self) -> Graphs | None:
        """The observed graphs of the framework."""
        return self.observation.graphs if self.observation else None

    @property
    def watch(self) -> Watch | None:
        """The observed reading of data."""
        return self.io.watch if self.io else None

    @property
    def files(self) -> Sequence[DataFile]:
        """The data files that the job reads."""
        return self.watch.files if self.watch else ()

    @property
    def readers(self) -> Sequence[tuple[Process, Thread]]:
        """The threads that read data, each after its process."""
        return self.watch.readers if self.watch else ()

    @property
    def experiment(self) -> Experiment | None:
        """The measured ways to read a file."""
        return self.io.experiment if self.io else None

    def report(self, kind: type[T]) -> T | None:
        """Return the system's document of this kind."""
        return next((one for one in self.reports if isinstance(one, kind)), None)


# Shares of the samples of a job's Python code, by activity

# share of the time; smaller shares vary from run to run
MIN_SHARE = 0.05
# standard errors of a one-sided 95 % confidence interval
ONE_SIDED = 1.645
# samples below which shares are chance
MIN_SAMPLES = 40


def activity_shares(evidence: Evidence) -> dict[Activity, Share]:
    """Return the shares by activity; none if there are too few samples."""
    python = evidence.python
    if python is None or has_few_samples(evidence.observation):
        return {}
    return {share.activity: share for share in python.shares}


def has_few_samples(observation: Observation | None) -> bool:
    """Return whether a job was observed with too few samples of its Python code, or none."""
    if observation is None:
        return False
    return observation.python is None or observation.python.looks < MIN_SAMPLES


def significant_share(evidence: Evidence, activity: Activity) -> Share | None:
    """Return the share of an activity; None if it is below `MIN_SHARE`, or samples are too few."""
    share = activity_shares(evidence).get(activity)
    return share if share and is_significant(evidence, share.share) else None


def shares_of(evidence: Evidence, *activities: Activity) -> list[Share]:
    """Return the shares of those activities that were sampled."""
    shares = activity_shares(evidence)
    return [shares[activity] for activity in activities if activity in shares]


def is_significant(evidence: Evidence, share: float) -> bool:
    """Return whether a share of the samples is at least `MIN_SHARE` with 95 % confidence."""
    python = evidence.python
    if python is None or not 0 < share <= 1:
        return False
    return share - ONE_SIDED * math.sqrt(share * (1 - share) / python.looks) >= MIN_SHARE


def runs_graphs(evidence: Evidence) -> bool:
    """Return whether the main thread runs graphs of steps, and not only single ops."""
    step = activity_shares(evidence).get("step")
    return step is not None and step.share >= MIN_SHARE


def at_line(share: Share) -> str:
    """Return the most frequent line of the job's own code, such as " at train.py:7"."""
    return f" at {share.lines[0].where}" if share.lines else ""


def most_often(share: Share) -> str:
    """Return the most frequent line as a text that can follow a sentence."""
    return f"; Python was most often{at_line(share)}" if share.lines else ""


def lock_share(evidence: Evidence) -> float:
    """Return the lowest possible share of samples in which both the main thread and a generator of
    the input pipeline were in Python code: one of them waits for the interpreter's lock."""
    python = evidence.python
    main = activity_shares(evidence).get("python")
    return max(0.0, main.share + python.generator - 1.0) if main and python else 0.0


# Shares of the time in which steps wait for data, and threads for storage

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


# The share of the time in the job's own Python code
def script_share(evidence: Evidence) -> tuple[Share, float] | None:
    """Return the samples in the job's own Python code, and their share of the time without waits
    for storage and for the interpreter's lock of a generator; None if the share is small."""
    python = significant_share(evidence, "python")
    if python is None:
        return None
    share = python.share - main_thread_waits(evidence) - lock_share(evidence)
    return (python, share) if is_significant(evidence, share) else None
