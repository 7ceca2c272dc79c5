"""Steps that wait for their data."""

from __future__ import annotations

from dltune.analysis.advice.advice import Advice, Gain, part
from dltune.analysis.figures import Analysis

# of the wall time; a few percent come and go with the rest of the machine
SHARE = 0.03


def input_wait(analysis: Analysis) -> Advice | None:
    share = part(analysis.profile, "input")
    if share < SHARE:
        return None
    return Advice(
        ("input_prefetch", "input_threads"),
        f"ops wait for data in {share:.0%} of the wall time: prefetching prepares the next batch "
        "while a step runs, unless the data come late for want of CPUs",
        Gain(0.0, share),
    )
