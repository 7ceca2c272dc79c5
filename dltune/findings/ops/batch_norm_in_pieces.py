"""Batch norm in pieces, although a fused kernel is available."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.roofline import Analysis
from dltune.analysis.step_parts import op_seconds, pieces, taken, unrecorded, working
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.profile import Profile, is_clock
from dltune.schemas.settings import Choice

# whole tensors that a fused kernel reads and writes: the input for the moments, the input again,
# and the output; in the gradient both inputs for the sums, both inputs again, and the output
FORWARD, GRADIENT = 3, 5
# gain relative to the saved bytes: 0.62 (DCGAN) to 1.05 in networks whose batch norm was fused
# (docs/research/benchmarks/diagnose.md)
LOW = 0.6


@rule(
    "batch-norm-in-pieces",
    "ops",
    summary="Batch norm runs as many small ops, although TensorFlow has a fused kernel for it.",
    fix="Use the fused kernel (the setting batch_norm=fused, which `dltune tune --only batch_norm` "
    "measures).",
    frameworks=("tensorflow",),
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find batch norm in pieces. The gain is the time of the ops without the time in which a fused
    kernel moves its bytes. The cost is the lowest gain."""
    analysis = evidence.profile
    if analysis is None:
        return
    profile = analysis.profile
    moves = {figures.op.key: figures.moved or 0 for figures in analysis.ops}
    layers = nodes = fused = moved = 0
    seconds = 0.0
    for step in profile.steps:
        for layer in pieces(step, profile.ops):
            layers += 1
            nodes += len(layer.nodes)
            fused += layer.bytes * (FORWARD + GRADIENT * layer.gradient)
            seconds += sum(taken(step, index, profile.ops) for index in layer.nodes)
            for index in layer.nodes:
                op = step.nodes[index].op
                moved += moves[profile.ops[op].key] if op is not None else 0
    if not layers or seconds <= 0 or not moved:
        return
    gain = _gain(analysis, seconds, moved / seconds, fused, nodes)
    yield Finding(
        title=f"batch norm is not fused: {layers} layer{'s run' if layers > 1 else ' runs'} as "
        f"{nodes} ops per step, {seconds / op_seconds(profile):.0%} of the op time",
        evidence=f"these ops move {moved / 2**20:.0f} MiB, fused kernels would move "
        f"{fused / 2**20:.0f} MiB",
        fix="use fused kernels: `dltune tune --only batch_norm` measures them on the job",
        seconds=gain.low * unrecorded(profile),
        share=gain.low,
        gain=gain,
        confidence="modelled",
        apply=(Choice("batch_norm", "fused"),),
        try_next=("batch_norm",),
    )


def _gain(analysis: Analysis, seconds: float, rate: float, fused: int, nodes: int) -> Gain:
    """Return the gain. The lowest gain is `LOW` of the time that remains if a fused kernel moves
    bytes at the rate of these ops. The highest gain assumes the rate of the best op of the profile,
    and includes the executor's time between ops if a clock was counted."""
    profile = analysis.profile
    ceiling = analysis.roofline.cache or analysis.roofline.memory
    best = max(rate, ceiling.rate if ceiling else 0.0)
    share = working(profile) / op_seconds(profile)
    runs = sum(node.repeats for step in profile.steps for node in step.nodes if node.op is not None)
    between = _between_ops(profile) * nodes / runs if runs else 0.0
    low = LOW * max(0.0, seconds - fused / rate) * share
    high = min(1.0, max(0.0, seconds - fused / best) * share + between)
    return Gain(low, high)


def _between_ops(profile: Profile) -> float:
    """Return the share of CPU time that the threads which run ops spend outside ops."""
    for total in profile.counters.totals if profile.counters else ():
        if is_clock(total.event) and total.ops + total.gaps > 0:
            return total.gaps / (total.ops + total.gaps)
    return 0.0
