"""A PyTorch optimizer that updates its tensors one by one, with several ops for each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dltune.analysis.step_parts import LONG, wall
from dltune.findings.evidence import Evidence
from dltune.findings.python_samples import MIN_SHARE
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.profile import Step
from dltune.schemas.settings import Choice

# optimizers with one op for all tensors on CPUs (PyTorch 2.4)
_FUSED = re.compile(r"Optimizer\.step#(SGD|Adam|AdamW|Adagrad)\.step")
# ops of a loop; and the share of their time that remains with one op, at least
MIN_OPS, REMAINS = 8, 0.25


@rule(
    "loop-optimizer",
    "ops",
    summary="The PyTorch optimizer updates its tensors one by one, with several ops for each.",
    fix="Pass fused=True to the optimizer.",
    frameworks=("pytorch",),
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find optimizer loops. The cost is their time, including the pause before the first op."""
    profile = evidence.profile.profile if evidence.profile else None
    if profile is None or not (whole := wall(profile)):
        return
    loops = [loop for step in profile.steps if (loop := _loop(step))]
    seconds = sum(duration for _, _, duration in loops)
    share = min(1.0, seconds / whole)
    if share < MIN_SHARE:
        return
    ops = sum(count for _, count, _ in loops)
    names = " and ".join(sorted({name for name, _, _ in loops}))
    yield Finding(
        title=f"the optimizer updates its tensors one by one, with {ops:,} ops per step",
        evidence=f"{names} can update all tensors with one op",
        fix=f"pass fused=True to {names}",
        seconds=seconds,
        share=share,
        gain=Gain(0.0, (1 - REMAINS) * share),
        confidence="rule",
        apply=(Choice("fused_optimizer", "on"),),
        try_next=("fused_optimizer",),
    )


def _loop(step: Step) -> tuple[str, int, float] | None:
    """Return the optimizer's name, its number of ops, and their seconds; None if it has no loop."""
    optimizer = _FUSED.fullmatch(step.name)
    ran = [
        (node, node.start, node.end)
        for node in step.nodes
        if node.start is not None and node.end is not None
    ]
    # an optimizer with a closure runs the passes, which can also compute without gradients
    passes = [
        index for index, (node, *_) in enumerate(ran) if not node.name.startswith("optimizer/")
    ]
    first = passes[-1] + 1 if passes else 0
    is_fused = any(
        part in node.type for node, *_ in ran[first:] for part in ("_fused_", "_foreach_")
    )
    if optimizer is None or is_fused or len(ran) - first < MIN_OPS:
        return None
    start = max(ran[first - 1][2], ran[first][1] - LONG) if first else ran[first][1]
    return optimizer[1], len(ran) - first, ran[-1][2] - start
