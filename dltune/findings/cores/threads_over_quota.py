"""More threads than the control group's CPU time pays for."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.documents.sections.settings import Choice
from dltune.findings.seen import Seen

THROTTLED = 0.05  # of the time


def find(seen: Seen) -> Iterator[Finding]:
    """Its cost, at most: the time for which the group stood still. A part of it stays, since the
    same work needs the same CPU time; what goes is waiting at ends of ops for a thread that stands
    still."""
    observation = seen.observation
    main = observation.main if observation else None
    if observation is None or main is None or main.intra is None:
        return
    quota, throttled = observation.host.quota, observation.host.throttled
    if quota is None or throttled is None or throttled < THROTTLED:
        return
    paid = max(1, math.floor(quota))
    if main.intra <= paid:
        return
    yield Finding(
        "threads-over-quota",
        f"ops have {main.intra} threads, but the control group pays for {quota:g} CPUs",
        f"its threads stood still for {throttled:.0%} of the time, after they had used up what the "
        f"quota allows in a period; TensorFlow has {main.intra} intra-op and {main.inter} inter-op "
        "threads, as many as the machine has CPUs",
        f"give it {paid} intra-op thread{'s' * (paid > 1)} (TF_NUM_INTRAOP_THREADS={paid}), or the "
        "container more CPUs",
        share=throttled,
        gain=Gain(0.0, throttled),
        sure="modelled",
        choices=(Choice("threads", f"{paid}x1"),),
        tries=("threads",),
    )
