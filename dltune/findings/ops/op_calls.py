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
    summary="Python calls many small ops one by one, and the calls take a large part of the step.",
    fix="Use larger batches, or fewer and larger ops; torch.compile can merge ops (`dltune tune "
    "--only jit_compile` measures it).",
    frameworks=("pytorch",),
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
        title=f"Python calls {len(short):,} ops per step one by one"
        + (", in addition to the optimizer's ops" if told else ""),
        evidence=f"no op runs for {sum(short) / len(short) * 1e6:.1f} us, on average, before each "
        "call",
        fix="use larger batches, or fewer and larger ops; torch.compile can merge ops: `dltune "
        "tune --only jit_compile` measures whether that is faster",
        seconds=sum(short),
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
        try_next=("jit_compile",),
    )
