"""Findings about many small ops, and about the time between ops.

In TensorFlow, the executor takes time between many small ops. In an eager step, the calls of small
ops in Python and PyTorch take time. A PyTorch optimizer can update its tensors one by one, with
several ops for each. The rule `time-in-ops` reports a step that spends its time in its ops, as it
should.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dltune.analysis.op_causes import SHORT_SECONDS
from dltune.analysis.step_parts import (
    LONG,
    op_seconds,
    part,
    pauses,
    recording,
    taken,
    unrecorded,
    wall,
    working,
)
from dltune.findings.evidence import MIN_SHARE, Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.profile import PartName, Step
from dltune.schemas.settings import Choice

# share of the wall time; smaller savings are within the noise of a step
MIN_SMALL_OPS = 0.05


@rule(
    "small-ops",
    "ops",
    summary="The step consists of many small ops, and the time between them is lost.",
    fix="Use fewer and larger ops (fusion, larger batches); XLA can merge ops (`dltune tune --only "
    "xla` measures it).",
    frameworks=("tensorflow",),
)
def small_ops(evidence: Evidence) -> Iterator[Finding]:
    """Find small ops. The cost is the time between ops; the highest gain includes the short ops."""
    if evidence.profile is None:
        return
    profile = evidence.profile.profile
    seconds = [
        taken(step, index, profile.ops)
        for step in profile.steps
        for index, node in enumerate(step.nodes)
        if node.op is not None and node.repeats > 0
    ]
    short = [duration for duration in seconds if duration < SHORT_SECONDS]
    whole = op_seconds(profile)
    step = unrecorded(profile)
    lost = (part(profile, "executor") * wall(profile) - recording(profile)) / step if step else 0
    within = sum(short) / whole * working(profile) if whole > 0 else 0.0
    if lost + within < MIN_SMALL_OPS:
        return
    yield Finding(
        title=f"{len(short):,} of {len(seconds):,} ops per step are shorter than "
        f"{SHORT_SECONDS * 1e6:.0f} us; together they take {within:.0%} of the wall time",
        evidence=f"no op runs for {lost:.0%} of the wall time, although the step does",
        fix="use fewer and larger ops (fusion, larger batches); XLA can merge ops, but its kernels "
        "for large ops are often slower on CPUs: `dltune tune --only xla` measures which is faster",
        seconds=lost * step,
        share=lost,
        gain=Gain(0.0, min(1.0, lost + within)),
        confidence="modelled",
        try_next=("jit_compile", "xla"),
    )


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
def loop_optimizer(evidence: Evidence) -> Iterator[Finding]:
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


@rule(
    "op-calls",
    "ops",
    summary="Python calls many small ops one by one, and the calls take a large part of the step.",
    fix="Use larger batches, or fewer and larger ops; torch.compile can merge ops (`dltune tune "
    "--only jit_compile` measures it).",
    frameworks=("pytorch",),
)
def op_calls(evidence: Evidence) -> Iterator[Finding]:
    """Find short pauses before ops, except those that the rule `loop-optimizer` reports."""
    profile = evidence.profile.profile if evidence.profile else None
    if profile is None or not (whole := wall(profile)):
        return
    has_loop = any(loop_optimizer(evidence))
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


# share of the wall time of a part outside ops; its removal gains 1.11x, about the spread of steps
WASTE = 0.1
ELSE: tuple[PartName, ...] = ("executor", "input", "communication", "python")


@rule(
    "time-in-ops",
    "ops",
    summary="The step spends its time in its ops, as it should.",
    fix="Nothing is wrong; `dltune plan threads` can choose a better thread count for each op.",
    frameworks=("tensorflow",),
)
def time_in_ops(evidence: Evidence) -> Iterator[Finding]:
    """Find a step that spends its time in its ops, as it should."""
    profile = evidence.profile.profile if evidence.profile else None
    if profile is None or not part(profile, "ops"):
        return
    share = part(profile, "ops")
    if all(part(profile, name) < WASTE for name in ELSE):
        yield Finding(
            title=f"the step spends {share:.0%} of its wall time in ops "
            f"({share * unrecorded(profile) * 1e3:.3g} ms)",
            evidence="little time is lost outside ops; `dltune plan threads` chooses their "
            "thread counts and which of them run side by side",
            confidence="measured",
        )
