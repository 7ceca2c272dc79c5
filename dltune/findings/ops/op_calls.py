"""Small ops of an eager step, and the time of their calls in Python and PyTorch."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.step_parts import LONG, pauses, wall
from dltune.findings.evidence import Evidence
from dltune.findings.ops import loop_optimizer
from dltune.findings.python_samples import MIN_SHARE
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain


@rule(
    "op-calls",
    "ops",
    summary="Python calls many small ops one by one, and the calls take a large part of the step.",
    fix="Use larger batches, or fewer and larger ops; torch.compile can merge ops (`dltune tune "
    "--only jit_compile` measures it).",
    frameworks=("pytorch",),
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find short pauses before ops, except those that the rule `loop-optimizer` reports."""
    profile = evidence.profile.profile if evidence.profile else None
    if profile is None or not (whole := wall(profile)):
        return
    has_loop = any(loop_optimizer.find(evidence))
    short = [
        pause.seconds
        for pause in pauses(profile)
        if pause.seconds < LONG and not (has_loop and pause.before.name.startswith("optimizer/"))
    ]
    share = sum(short) / whole
    if share < MIN_SHARE:
        return
    share = min(1.0, share)
    yield Finding(
        title=f"Python calls {len(short):,} ops per step one by one"
        + (", in addition to the optimizer's ops" if has_loop else ""),
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
