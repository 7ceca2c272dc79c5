"""Small ops of an eager step: what Python and PyTorch need to call each."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.parts import wall
from dltune.analysis.pauses import LONG, pauses
from dltune.documents.finding import Finding, Gain
from dltune.findings.looked import LEAST
from dltune.findings.ops import loop_optimizer
from dltune.findings.rule import rule
from dltune.findings.seen import Seen


@rule(
    "op-calls",
    "ops",
    summary="Small ops of an eager step: what Python and PyTorch need to call each.",
    fix="",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the short pauses before ops, but an optimizer's that another rule tells of."""
    profile = seen.profile.profile if seen.profile else None
    if profile is None or not (whole := wall(profile)):
        return
    told = any(loop_optimizer.find(seen))
    short = [
        pause.seconds
        for pause in pauses(profile)
        if pause.seconds < LONG and not (told and pause.before.name.startswith("optimizer/"))
    ]
    share = sum(short) / whole
    if share < LEAST:
        return
    share = min(1.0, share)
    yield Finding(
        cause="op-calls",
        title=f"Python calls {len(short):,} ops of a step one by one"
        + (", without the optimizer's" if told else ""),
        evidence=f"before each lie {sum(short) / len(short) * 1e6:.1f} us, in the mean, in which none runs",
        fix="larger batches, or fewer and larger ops; torch.compile makes one of many, which only "
        "measuring tells (dltune tune --only jit_compile)",
        seconds=sum(short),
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
        try_next=("jit_compile",),
    )
