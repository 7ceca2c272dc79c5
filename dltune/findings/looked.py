"""What the looks at a job's Python say of one activity."""

from __future__ import annotations

import math

from dltune.documents.observation import Activity, Observation, Share
from dltune.findings.seen import Seen

# of the time; less comes and goes
LEAST = 0.05
# of a normal distribution, 95 % lie above minus this
ONE_SIDED = 1.645
# looks below which shares of them are chance
LEAST_LOOKS = 40


def shares(seen: Seen) -> dict[Activity, Share]:
    """By activity; nothing of too few looks."""
    python = seen.observation.python if seen.observation else None
    if python is None or few(seen.observation):
        return {}
    return {share.activity: share for share in python.shares}


def few(observation: Observation | None) -> bool:
    """Whether a job was looked at, and its Python too seldom, or never."""
    if observation is None:
        return False
    return observation.python is None or observation.python.looks < LEAST_LOOKS


def at(seen: Seen, activity: Activity) -> Share | None:
    """The share of looks that found it; None below `LEAST`, or of too few looks."""
    found = shares(seen).get(activity)
    return found if found and costs(seen, found.share) else None


def at_any(seen: Seen, *activities: Activity) -> list[Share]:
    """The shares of those that were seen."""
    every = shares(seen)
    return [every[activity] for activity in activities if activity in every]


def costs(seen: Seen, share: float) -> bool:
    """Whether a share of looks is surely `LEAST` or more, and not by the chance of the looks."""
    python = seen.observation.python if seen.observation else None
    if python is None or not 0 < share <= 1:
        return False
    return share - ONE_SIDED * math.sqrt(share * (1 - share) / python.looks) >= LEAST


def runs_graphs(seen: Seen) -> bool:
    """Whether the main thread was seen in graphs of steps, and not only in single ops."""
    step = shares(seen).get("step")
    return step is not None and step.share >= LEAST


def where(share: Share) -> str:
    """The line of the job's own at which it was seen most."""
    return f" at {share.lines[0].where}" if share.lines else ""


def often(share: Share) -> str:
    """The same, ready to follow a sentence."""
    return f"; Python was most often{where(share)}" if share.lines else ""


def lock_share(seen: Seen) -> float:
    """Share of looks that found both the main thread and a generator of the input pipeline in
    Python, at the least: one of the two waits for the interpreter's lock."""
    python = seen.observation.python if seen.observation else None
    own = shares(seen).get("python")
    return max(0.0, own.share + python.generator - 1.0) if own and python else 0.0
