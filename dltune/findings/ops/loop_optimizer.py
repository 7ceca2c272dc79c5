"""An optimizer of PyTorch's that updates tensor after tensor, by several ops each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dltune.analysis.parts import wall
from dltune.analysis.pauses import LONG
from dltune.documents.finding import Finding, Gain
from dltune.documents.profile import Step
from dltune.documents.sections.settings import Choice
from dltune.findings.looked import LEAST
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# those that have one op for all tensors on CPUs (PyTorch 2.4)
_FUSED = re.compile(r"Optimizer\.step#(SGD|Adam|AdamW|Adagrad)\.step")
# of its ops, fewer are little to call; of their time, at least so much stays
FEW, STAYS = 8, 0.25


@rule(
    "loop-optimizer",
    "ops",
    summary="The PyTorch optimizer updates its tensors one by one, with several ops for each.",
    fix="Pass fused=True to the optimizer.",
    frameworks=("pytorch",),
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: from its first op to its last, with what it does to begin."""
    profile = seen.profile.profile if seen.profile else None
    if profile is None or not (whole := wall(profile)):
        return
    loops = [loop for step in profile.steps if (loop := _loop(step))]
    seconds = sum(each for _, _, each in loops)
    share = min(1.0, seconds / whole)
    if share < LEAST:
        return
    ops = sum(count for _, count, _ in loops)
    names = " and ".join(sorted({name for name, _, _ in loops}))
    yield Finding(
        title=f"the optimizer updates its tensors one by one, with {ops:,} ops per step",
        evidence=f"{names} can update all tensors with one op",
        fix=f"pass fused=True to {names}",
        seconds=seconds,
        share=share,
        gain=Gain(0.0, (1 - STAYS) * share),
        confidence="rule",
        apply=(Choice("fused_optimizer", "on"),),
        try_next=("fused_optimizer",),
    )


def _loop(step: Step) -> tuple[str, int, float] | None:
    """The optimizer's name, how many ops it ran one by one, and the seconds that these took."""
    known = _FUSED.fullmatch(step.name)
    ran = [
        (node, node.start, node.end)
        for node in step.nodes
        if node.start is not None and node.end is not None
    ]
    # the passes run within the optimizer where it is given a closure, which may compute without
    # gradients, too
    passes = [at for at, (node, *_) in enumerate(ran) if not node.name.startswith("optimizer/")]
    first = passes[-1] + 1 if passes else 0
    at_once = any(
        part in node.type for node, *_ in ran[first:] for part in ("_fused_", "_foreach_")
    )
    if known is None or at_once or len(ran) - first < FEW:
        return None
    begun = max(ran[first - 1][2], ran[first][1] - LONG) if first else ran[first][1]
    return known[1], len(ran) - first, ran[-1][2] - begun
