"""Advice without measuring: which settings around the ops a profile speaks for, a function each."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dltune.analysis.batch_norm import pieces
from dltune.analysis.figures import Analysis, Figures, analyse
from dltune.analysis.keys import parse
from dltune.analysis.roofline import Measured
from dltune.analysis.why import FAULT_SECONDS, SHORT_SECONDS
from dltune.documents.profile import Op, PartName, Profile, Step, is_clock

# Reading and writing of whole tensors in a fused kernel: the moments, then the input once more and
# the output; in the gradient both inputs for the sums, both again and the output.
FORWARD, GRADIENT = 3, 5
# the families that gain most; where oneDNN is on, TensorFlow rewrites them to _Mkl... ops
REWRITTEN = frozenset(
    {
        *("Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3D"),
        *("Conv3DBackpropFilter", "Conv3DBackpropInput", "DepthwiseConv2dNative"),
        *("MatMul", "BatchMatMul"),
    }
)
# of the op time
ONEDNN_SHARE = 0.1
# of the op time; less could hide in the spread of the measurements
FAULT_SHARE = 0.02
# of the wall time; a few percent come and go with the rest of the machine
INPUT_SHARE = 0.03
# of the wall time; to remove a twentieth is about what can be seen in a noisy step
SMALL_SHARE = PYTHON_SHARE = 0.05


@dataclass(frozen=True)
class Gain:
    """Shares of the steps' wall time that may be saved: expected at least, and at most."""

    low: float
    high: float

    def __str__(self) -> str:
        if self.low < 0.005:
            return f"at most {self.high:.0%} of the step"
        return f"{self.low:.0%} to {self.high:.0%} of the step"


@dataclass(frozen=True)
class Advice:
    """`settings`: names of those in `settings/space` that may help, the likeliest first.

    `sentence`: what was seen, with its figures, and what helps. `gain`: None where the profile's
    figures do not say what could be gained.
    """

    settings: tuple[str, ...]
    sentence: str
    gain: Gain | None

    def __str__(self) -> str:
        return f"{self.sentence}; expected gain: {self.gain or 'cannot be told from a profile'}"


def part(profile: Profile, name: PartName) -> float:
    """A part of the wall time of a round of the steps, as a share; 0 where it is not known."""
    whole = sum(part.seconds for step in profile.steps for part in step.parts)
    seconds = sum(p.seconds for step in profile.steps for p in step.parts if p.name == name)
    return seconds / whole if whole > 0 else 0.0


def working(profile: Profile) -> float:
    """The share of the wall time in which ops ran; all of it where that is not known."""
    return part(profile, "ops") if any(step.parts for step in profile.steps) else 1.0


def seconds(step: Step, index: int, ops: tuple[Op, ...]) -> float:
    """What a node took in the sampled execution, else the median of its op."""
    node = step.nodes[index]
    if node.start is not None and node.end is not None:
        return node.end - node.start
    return (ops[node.op].own or 0.0) * node.repeats if node.op is not None else 0.0


def op_seconds(profile: Profile) -> float:
    """All ops of a round of the steps, under the job's own settings."""
    return sum(
        seconds(step, index, profile.ops)
        for step in profile.steps
        for index in range(len(step.nodes))
    )


def batch_norm(analysis: Analysis) -> Advice | None:
    """Batch norm in pieces, for which there is a fused kernel.

    The gain: what the ops take, less what a fused kernel takes to move what it must.

    At least: as many bytes/s as these ops reach. At most: as many as the best op of the profile,
    and what the executor needs between ops, which is counted where a clock is.
    """
    profile = analysis.profile
    moves = {figures.op.key: figures.moved or 0 for figures in analysis.ops}
    layers = nodes = fused = moved = 0
    spent = 0.0
    for step in profile.steps:
        for layer in pieces(step, profile.ops):
            layers += 1
            nodes += len(layer.nodes)
            fused += layer.bytes * (FORWARD + GRADIENT * layer.gradient)
            spent += sum(seconds(step, index, profile.ops) for index in layer.nodes)
            for index in layer.nodes:
                op = step.nodes[index].op
                moved += moves[profile.ops[op].key] if op is not None else 0
    whole = op_seconds(profile)
    if not layers or spent <= 0 or not moved:
        return None
    rate = moved / spent
    ceiling = analysis.roofline.cache or analysis.roofline.memory
    best = max(rate, ceiling.rate if ceiling else 0.0)
    share = working(profile) / whole
    runs = sum(node.repeats for step in profile.steps for node in step.nodes if node.op is not None)
    between = _between_ops(profile) * nodes / runs if runs else 0.0
    gain = Gain(
        low=max(0.0, spent - fused / rate) * share,
        high=min(1.0, max(0.0, spent - fused / best) * share + between),
    )
    return Advice(
        ("batch_norm",),
        f"batch norm is not fused: {layers} layer{'s are' if layers > 1 else ' is'} {nodes} ops a "
        f"step, {spent / whole:.0%} of the op time, and move {moved / 2**20:.0f} MiB "
        f"where fused kernels move {fused / 2**20:.0f}",
        gain,
    )


def _between_ops(profile: Profile) -> float:
    """Of the CPU time of the threads that run ops, the share outside of them."""
    for total in profile.counters.totals if profile.counters else ():
        if is_clock(total.event) and total.ops + total.gaps > 0:
            return total.gaps / (total.ops + total.gaps)
    return 0.0


def onednn(analysis: Analysis) -> Advice | None:
    """oneDNN's kernels, where TensorFlow leaves them off.

    No gain is told: it was 1.3x here and 6x there, and less than 1x elsewhere.
    """
    ops = analysis.profile.ops
    if any(op.type.startswith("_Mkl") for op in ops):
        return None
    plain = total = 0.0
    for op in ops:
        own = (op.own or 0.0) * op.count
        total += own
        key = parse(op)
        if key and key.family in REWRITTEN and any(t.dtype == "float" for t in key.inputs):
            plain += own
    if total <= 0 or plain / total < ONEDNN_SHARE:
        return None
    return Advice(
        ("onednn",),
        f"oneDNN's kernels are off, and {plain / total:.0%} of the op time is in convolutions and "
        "matrix products, for which it has some: try the job with TF_ENABLE_ONEDNN_OPTS=1",
        None,
    )


def threads(analysis: Analysis) -> Advice | None:
    """More threads than the job has CPUs for.

    The gain at most: what the ops, measured one at a time, take less on the right count.
    """
    profile = analysis.profile
    machine, intra = profile.machine, profile.settings.intra
    cores = len(machine.cores)
    right = max(1, min(cores, math.floor(machine.quota or cores)))
    if intra <= right:
        return None
    limit = f"the {cores} cores" if right == cores else f"the quota of {machine.quota:g} CPUs"
    told = f"ops have {intra} threads, more than {limit}"
    there = _serial(analysis, min(intra, cores))
    here = _serial(analysis, right)
    gain = None
    if there and here and right < min(intra, cores):
        told += (
            f"; measured one at a time they take {here * 1e3:.3g} ms on {right} and "
            f"{there * 1e3:.3g} ms on {min(intra, cores)}"
        )
        gain = Gain(0.0, max(0.0, 1 - here / there) * working(profile))
    return Advice(("threads",), f"{told}; {right} would keep none waiting for a CPU", gain)


def _serial(analysis: Analysis, count: int) -> float | None:
    """Seconds of all ops of a round on so many threads; None when some were not measured there."""
    total = 0.0
    for figures in analysis.ops:
        if figures.cases:
            found = [c.time.median for c in figures.cases if c.time.threads == count]
            if not found:
                return None
            total += min(found) * figures.op.count
    return total


def faults(analysis: Analysis) -> Advice | None:
    """Page faults of ops: memory that the allocator gave back, and maps anew in each step.

    The gain at most: each fault's seconds, divided among the threads of its op.
    """
    profile = analysis.profile
    count = wall = whole = 0.0
    for figures in analysis.ops:
        case = _usual(figures, profile.settings.intra)
        if case is None:
            continue
        whole += case.time.median * figures.op.count
        if case.rates.faults:
            count += case.rates.faults * figures.op.count
            wall += case.rates.faults * figures.op.count / case.time.threads
    counters = profile.counters
    each = (counters and counters.fault_seconds) or FAULT_SECONDS
    share = min(1.0, wall * each / whole) if whole > 0 else 0.0
    if share < FAULT_SHARE:
        return None
    known = "as measured here" if counters and counters.fault_seconds else "at the very least"
    return Advice(
        ("allocator",),
        f"the ops of a step have {count:,.0f} page faults, {count * each * 1e3:.3g} ms of CPU time "
        f"at {each * 1e6:.2g} us each, {known}: memory that is freed goes back to the system and "
        "is mapped anew; an allocator that keeps it, or huge pages, cure it",
        Gain(0.0, share * working(profile)),
    )


def _usual(figures: Figures, intra: int) -> Measured | None:
    """The op at as many threads as the job gives it, or nearest to it."""
    return min(figures.cases, key=lambda case: abs(case.time.threads - intra), default=None)


def input_wait(analysis: Analysis) -> Advice | None:
    """Steps that wait for their data."""
    share = part(analysis.profile, "input")
    if share < INPUT_SHARE:
        return None
    return Advice(
        ("input_prefetch", "input_threads"),
        f"ops wait for data in {share:.0%} of the wall time: prefetching prepares the next batch "
        "while a step runs, unless the data come late for want of CPUs",
        Gain(0.0, share),
    )


def between_steps(analysis: Analysis) -> Advice | None:
    """Python between the steps."""
    share = part(analysis.profile, "python")
    if share < PYTHON_SHARE:
        return None
    return Advice(
        ("steps_per_execution",),
        f"Python runs between the steps in {share:.0%} of the wall time: where Keras' fit drives "
        "them, several steps in one execution leave most of it out",
        Gain(0.0, share),
    )


def small_ops(analysis: Analysis) -> Advice | None:
    """Many small ops: what the executor needs between them, and what calling them takes.

    The gain at most: all that is lost between ops, and the short ops themselves.
    """
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
    if lost + within < SMALL_SHARE:
        return None
    return Advice(
        ("jit_compile", "xla"),
        f"{len(short):,} of {len(taken):,} ops a step are shorter than "
        f"{SHORT_SECONDS * 1e6:.0f} us, {within:.0%} of the wall time, and in {lost:.0%} of it no "
        "op runs though the step does; XLA makes one of many, but its kernels for large ops are "
        "often slower on CPUs, so only measuring tells",
        Gain(0.0, lost + within),
    )


def advise(profile: Profile) -> list[Advice]:
    """What `dltune tune` should try first, the largest expected gain first."""
    return advice_of(analyse(profile))


def advice_of(analysis: Analysis) -> list[Advice]:
    kinds = (batch_norm, onednn, threads, faults, input_wait, between_steps, small_ops)
    found = [advice for kind in kinds if (advice := kind(analysis))]
    return sorted(found, key=_promise, reverse=True)


def _promise(advice: Advice) -> float:
    """What is not to be told comes first: oneDNN, or too many threads, may be worth several x."""
    return (advice.gain.low + advice.gain.high) / 2 if advice.gain else 1.0
