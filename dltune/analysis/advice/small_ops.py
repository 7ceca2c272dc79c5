"""Many small ops: what the executor needs between them, and what calling them takes."""

from __future__ import annotations

from dltune.analysis.advice.advice import Advice, Gain, op_seconds, part, seconds, working
from dltune.analysis.figures import Analysis
from dltune.analysis.why import SHORT_SECONDS

# of the wall time; to remove a twentieth is about what can be seen in a noisy step
SHARE = 0.05


def small_ops(analysis: Analysis) -> Advice | None:
    """The gain at most: all that is lost between ops, and the short ops themselves."""
    profile = analysis.profile
    taken = [
        seconds(step, index, profile.ops)
        for step in profile.steps
        for index, node in enumerate(step.nodes)
        if node.op is not None and node.repeats > 0
    ]
    short = [each for each in taken if each < SHORT_SECONDS]
    whole = op_seconds(profile)
    lost = part(profile, "executor")
    within = sum(short) / whole * working(profile) if whole > 0 else 0.0
    if lost + within < SHARE:
        return None
    return Advice(
        ("jit_compile", "xla"),
        f"{len(short):,} of {len(taken):,} ops a step are shorter than "
        f"{SHORT_SECONDS * 1e6:.0f} us, {within:.0%} of the wall time, and in {lost:.0%} of it no "
        "op runs though the step does; XLA makes one of many, but its kernels for large ops are "
        "often slower on CPUs, so only measuring tells",
        Gain(0.0, lost + within),
    )
