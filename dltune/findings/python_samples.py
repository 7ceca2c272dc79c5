"""Shares of the samples of a job's Python code, by activity."""

from __future__ import annotations

import math

from dltune.findings.evidence import Evidence
from dltune.schemas.diagnosis import Activity, Observation, Share

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
