"""Steps that wait for an input pipeline in which one thread works."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.parts import wall
from dltune.documents.finding import Finding, Gain
from dltune.documents.sections.settings import Choice
from dltune.findings.data.waits import input_share
from dltune.findings.seen import Seen

WAITS, GENERATES = 0.05, 0.3  # of the time
# seconds of a step, within which an element that is ready goes from its thread to the step's
HAND_OVER = 4e-4


def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the time that steps waited for data while cores had nothing to do."""
    observation = seen.observation
    main = observation.main if observation else None
    share = input_share(seen)
    if observation is None or main is None or share < WAITS:
        return
    if observation.python and observation.python.generator >= GENERATES:
        return
    if seen.profile and 0 < share * wall(seen.profile.profile) < HAND_OVER:
        return
    cores = len(main.cpus)
    idle = max(0.0, 1 - main.cpu / cores) if cores else 0.0
    yield Finding(
        "sequential-map",
        f"steps wait for the input pipeline {share:.0%} of the time",
        f"meanwhile the job used {main.cpu:.2f} of {cores} CPUs: its pipeline prepares one element "
        "after the other",
        "map(..., num_parallel_calls=tf.data.AUTOTUNE), and .prefetch(tf.data.AUTOTUNE) at the "
        "end; cache() what is the same in each epoch",
        share=share,
        gain=Gain(min(share, 0.5 * idle), share),
        sure="modelled",
        choices=(Choice("input_prefetch", "auto"),),
        tries=("input_prefetch", "input_threads"),
    )
