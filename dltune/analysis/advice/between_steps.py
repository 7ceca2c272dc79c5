"""Python between the steps."""

from __future__ import annotations

from dltune.analysis.advice.advice import Advice, Gain, part
from dltune.analysis.figures import Analysis

# of the wall time, as for small ops
SHARE = 0.05


def between_steps(analysis: Analysis) -> Advice | None:
    share = part(analysis.profile, "python")
    if share < SHARE:
        return None
    return Advice(
        ("steps_per_execution",),
        f"Python runs between the steps in {share:.0%} of the wall time: where Keras' fit drives "
        "them, several steps in one execution leave most of it out",
        Gain(0.0, share),
    )
