"""Batch norm in pieces, for which there is a fused kernel."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.batch_norm import pieces
from dltune.analysis.figures import Analysis
from dltune.analysis.parts import op_seconds, taken, unrecorded, working
from dltune.documents.finding import Finding, Gain
from dltune.documents.profile import Profile, is_clock
from dltune.documents.sections.settings import Choice
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# Reading and writing of whole tensors in a fused kernel: the moments, then the input once more and
# the output; in the gradient both inputs for the sums, both again and the output.
FORWARD, GRADIENT = 3, 5
# Of the networks whose batch norm was fused the gain was 0.62 (DCGAN) to 1.05 of what bytes alone
# say (docs/research/benchmarks/diagnose.md).
LEAST = 0.6


@rule(
    "batch-norm-in-pieces",
    "ops",
    summary="Batch norm runs as many small ops, although TensorFlow has a fused kernel for it.",
    fix="Use the fused kernel (the setting batch_norm=fused, which `dltune tune --only batch_norm` "
    "measures).",
    frameworks=("tensorflow",),
)
def find(seen: Seen) -> Iterator[Finding]:
    """The gain: what the ops take, less what a fused kernel takes to move what it must. The cost:
    the least of it."""
    analysis = seen.profile
    if analysis is None:
        return
    profile = analysis.profile
    moves = {figures.op.key: figures.moved or 0 for figures in analysis.ops}
    layers = nodes = fused = moved = 0
    spent = 0.0
    for step in profile.steps:
        for layer in pieces(step, profile.ops):
            layers += 1
            nodes += len(layer.nodes)
            fused += layer.bytes * (FORWARD + GRADIENT * layer.gradient)
            spent += sum(taken(step, index, profile.ops) for index in layer.nodes)
            for index in layer.nodes:
                op = step.nodes[index].op
                moved += moves[profile.ops[op].key] if op is not None else 0
    if not layers or spent <= 0 or not moved:
        return
    gain = _gain(analysis, spent, moved / spent, fused, nodes)
    yield Finding(
        title=f"batch norm is not fused: {layers} layer{'s run' if layers > 1 else ' runs'} as "
        f"{nodes} ops per step, {spent / op_seconds(profile):.0%} of the op time",
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


def _gain(analysis: Analysis, spent: float, rate: float, fused: int, nodes: int) -> Gain:
    """At least: `LEAST` of what is left at as many bytes/s as these ops reach. At most: what is
    left at as many as the best op of the profile, and what the executor needs between ops, which
    is counted where a clock is."""
    profile = analysis.profile
    ceiling = analysis.roofline.cache or analysis.roofline.memory
    best = max(rate, ceiling.rate if ceiling else 0.0)
    share = working(profile) / op_seconds(profile)
    runs = sum(node.repeats for step in profile.steps for node in step.nodes if node.op is not None)
    between = _between_ops(profile) * nodes / runs if runs else 0.0
    low = LEAST * max(0.0, spent - fused / rate) * share
    high = min(1.0, max(0.0, spent - fused / best) * share + between)
    return Gain(low, high)


def _between_ops(profile: Profile) -> float:
    """Of the CPU time of the threads that run ops, the share outside of them."""
    for total in profile.counters.totals if profile.counters else ():
        if is_clock(total.event) and total.ops + total.gaps > 0:
            return total.gaps / (total.ops + total.gaps)
    return 0.0
