"""Findings about kernels that are slower than others for the same ops, and about compilation.

Ops can compute in double precision, or in a precision for which the CPU has no fast kernels.
TensorFlow can run without oneDNN's kernels, or run batch norm in pieces although a fused kernel is
available. XLA can compile clusters again and again.
"""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.keys import Key, parse
from dltune.analysis.op_causes import below_roof
from dltune.analysis.roofline import Analysis, Figures
from dltune.analysis.step_parts import op_seconds, pieces, portion, taken, unrecorded, working
from dltune.findings.cores import advised
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.profile import Profile, is_clock
from dltune.schemas.settings import Choice

MIN_DOUBLE = 0.1  # of the op time
# vector registers hold half as many numbers, and memory moves twice as many bytes
DOUBLE_SLOWDOWN = 2.0


@rule(
    "float64",
    "ops",
    summary="Ops compute in double precision (float64).",
    fix="Convert data to float32 where they enter the job (astype('float32')), and keep the "
    "framework's default type at float32.",
)
def float64(evidence: Evidence) -> Iterator[Finding]:
    """Find ops in double precision. The cost is half of their time."""
    if evidence.profile is None:
        return
    doubles, heaviest = portion(evidence.profile.profile, _is_double)
    if doubles < MIN_DOUBLE:
        return
    share = doubles * working(evidence.profile.profile) * (1 - 1 / DOUBLE_SLOWDOWN)
    limits = (
        text for figures in evidence.profile.ops for text in _limits(figures, evidence.profile)
    )
    names = advised(evidence.framework)
    yield Finding(
        title=f"ops in double precision (float64) take {doubles:.0%} of the op time",
        evidence=f"most of this time is in {heaviest}; NumPy arrays are float64 by default, and "
        f"{names.array_function} keeps that type{next(limits, '')}",
        fix="if float32 is accurate enough, convert data where they enter the job "
        f"(astype('float32')) and keep {names.default_type} at float32; dltune itself does not "
        "change the precision",
        seconds=share * unrecorded(evidence.profile.profile),
        share=share,
        gain=Gain(0.0, share),
        confidence="rule",
    )


def _is_double(key: Key) -> bool:
    return any(tensor.dtype == "double" for tensor in key.inputs)


def _limits(figures: Figures, analysis: Analysis) -> Iterator[str]:
    """Describe what else limits ops in double precision, as texts that can follow a sentence."""
    key = parse(figures.op)
    if key and _is_double(key):
        for limit in below_roof(figures, analysis):
            yield f"; {figures.op.type}: {limit.sentence}"


MIN_HALF = 0.05  # of the op time
# the type whose kernels use no vector instructions, except on the newest CPUs
HALF = "half"
# time relative to float32: on a Zen 5, a convolution took 10 times as long, a product equally long
HALF_SLOWDOWN = 3.0


@rule(
    "reference-kernel",
    "ops",
    summary="Ops compute in float16, for which the CPU has no fast kernels.",
    fix="Train in float32, or in bfloat16 if the CPU has avx512_bf16 or amx_bf16.",
)
def reference_kernel(evidence: Evidence) -> Iterator[Finding]:
    """Find slow ops. The cost is their additional time over float32, known from other jobs."""
    if evidence.profile is None:
        return
    profile = evidence.profile.profile
    slow, heaviest = portion(profile, lambda key: any(t.dtype == HALF for t in key.inputs))
    if slow < MIN_HALF:
        return
    share = slow * working(profile) * (1 - 1 / HALF_SLOWDOWN)
    yield Finding(
        title=f"{slow:.0%} of the op time is in float16, for which this CPU has no fast kernels",
        evidence=f"most of this time is in {heaviest}, which falls back to a reference "
        "implementation; in other jobs, such convolutions took up to ten times as long as in "
        "float32",
        fix="train in float32, or in bfloat16 if the CPU has avx512_bf16 or amx_bf16 (Keras: "
        "set_dtype_policy('float32'))",
        seconds=share * unrecorded(profile),
        share=share,
        gain=Gain(0.0, share),
        confidence="rule",
    )


# the families that gain most; with oneDNN, TensorFlow rewrites their ops to _Mkl... ops
REWRITTEN = frozenset(
    {
        *("Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3D"),
        *("Conv3DBackpropFilter", "Conv3DBackpropInput", "DepthwiseConv2dNative"),
        *("MatMul", "BatchMatMul"),
    }
)
MIN_REWRITTEN = 0.1  # of the op time
# speed of such ops with oneDNN, relative to without, in two jobs; in other jobs it was lower
USUAL, BEST = 1.3, 6.0


@rule(
    "onednn-off",
    "ops",
    summary="TensorFlow runs convolutions and matrix products without oneDNN's kernels.",
    fix="Set TF_ENABLE_ONEDNN_OPTS=1 and compare the speed.",
    frameworks=("tensorflow",),
)
def onednn_off(evidence: Evidence) -> Iterator[Finding]:
    """Find ops without oneDNN. The cost is known only from other jobs; some became slower."""
    if evidence.profile is None:
        return
    profile = evidence.profile.profile
    if any(op.type.startswith("_Mkl") for op in profile.ops):
        return
    plain, _ = portion(profile, _is_rewritten)
    if plain < MIN_REWRITTEN:
        return
    share = plain * working(profile)
    cost = share * (1 - 1 / USUAL)
    yield Finding(
        title=f"TensorFlow runs without oneDNN, which has kernels for {plain:.0%} of the op time "
        "(convolutions and matrix products)",
        evidence=f"in other jobs, such ops were {USUAL}x to {BEST:.0f}x as fast with oneDNN, and "
        "in a few jobs slower",
        fix="set TF_ENABLE_ONEDNN_OPTS=1 and compare the speed",
        seconds=cost * unrecorded(profile),
        share=cost,
        gain=Gain(0.0, share * (1 - 1 / BEST)),
        confidence="rule",
        apply=(Choice("onednn", "on"),),
        try_next=("onednn",),
    )


def _is_rewritten(key: Key) -> bool:
    return key.family in REWRITTEN and any(tensor.dtype == "float" for tensor in key.inputs)


# whole tensors that a fused kernel reads and writes: the input for the moments, the input again,
# and the output; in the gradient both inputs for the sums, both inputs again, and the output
FORWARD, GRADIENT = 3, 5
# gain relative to the saved bytes: 0.62 (DCGAN) to 1.05 in networks whose batch norm was fused
# (docs/research/benchmarks/diagnose.md)
LOW_GAIN = 0.6


@rule(
    "batch-norm-in-pieces",
    "ops",
    summary="Batch norm runs as many small ops, although TensorFlow has a fused kernel for it.",
    fix="Use the fused kernel (the setting batch_norm=fused, which `dltune tune --only batch_norm` "
    "measures).",
    frameworks=("tensorflow",),
)
def batch_norm_in_pieces(evidence: Evidence) -> Iterator[Finding]:
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
    """Return the gain. The lowest gain is `LOW_GAIN` of the time that remains if a fused kernel
    moves bytes at the rate of these ops. The highest gain assumes the rate of the best op of the
    profile, and includes the executor's time between ops if a clock was counted."""
    profile = analysis.profile
    ceiling = analysis.roofline.cache or analysis.roofline.memory
    best = max(rate, ceiling.rate if ceiling else 0.0)
    share = working(profile) / op_seconds(profile)
    runs = sum(node.repeats for step in profile.steps for node in step.nodes if node.op is not None)
    between = _between_ops(profile) * nodes / runs if runs else 0.0
    low = LOW_GAIN * max(0.0, seconds - fused / rate) * share
    high = min(1.0, max(0.0, seconds - fused / best) * share + between)
    return Gain(low, high)


def _between_ops(profile: Profile) -> float:
    """Return the share of CPU time that the threads which run ops spend outside ops."""
    for total in profile.counters.totals if profile.counters else ():
        if is_clock(total.event) and total.ops + total.gaps > 0:
            return total.gaps / (total.ops + total.gaps)
    return 0.0


MIN_COMPILATIONS = 3  # during the observation
MIN_COMPILING = 0.05  # of the time


@rule(
    "recompiling",
    "ops",
    summary="XLA compiles the same code again and again, for new input shapes.",
    fix="Keep the shapes of batches the same (pad them to a few lengths, drop_remainder=True), or "
    "remove jit_compile=True.",
    frameworks=("tensorflow",),
)
def recompiling(evidence: Evidence) -> Iterator[Finding]:
    """Find compilations. The cost is the time of the first runs with inputs of a new shape."""
    observation = evidence.observation
    graphs = evidence.graphs
    if observation is None or graphs is None or graphs.compilations < MIN_COMPILATIONS:
        return
    share = min(1.0, graphs.compiling / observation.seconds)
    if share < MIN_COMPILING:
        return
    yield Finding(
        title=f"XLA compiles again and again: {graphs.compilations} times in "
        f"{observation.seconds:.0f} s",
        evidence="XLA compiles again if the shapes of inputs change; the runs that compiled took "
        f"{share:.0%} of the time",
        fix="keep the shapes of batches the same (pad them to a few lengths, "
        "drop_remainder=True), or remove jit_compile=True",
        share=share,
        gain=Gain(0.8 * share, share),
        confidence="measured",
    )
