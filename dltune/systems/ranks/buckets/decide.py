"""The division of the gradients into buckets under which a step is predicted shortest.

Gradients travel in the order in which the backward pass has them, which DDP keeps by itself: no
other order ends sooner, as long as one bucket travels at a time and all are waited for. A bucket
leaves when its last gradient is there and the previous bucket has come; the optimizer begins when
the last has. The rest of a step takes its measured time.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dltune.base.errors import UsageError
from dltune.base.formatting import counted
from dltune.schemas import graph
from dltune.schemas.graph import TensorType
from dltune.schemas.profile import (
    ALLREDUCE,
    Framework,
    Node,
    Op,
    Profile,
    Step,
)
from dltune.simulate.overlap import MOST, Cost, Runs, ended, partitions
from dltune.systems.ranks.buckets.section import Buckets, Model, filled

# puts a gradient where it travels from; of such of a step there is one for each gradient
_COMPUTED = re.compile(r"torch::distributed::reducer::(mul_out|mul|div_|copy_)")
# DDP's own, in front of a forward pass or behind the backward pass
_SELF = "torch.distributed.ddp.reducer::"
# bytes that ranks exchange for each parameter to find unused parameters
_FLAG = 4
# Seconds of a transfer that are the same for any size, at least: as measured for two ranks over
# gloo on one machine. Concurrent sums do not show it, and a rank that waits on the only core it
# computes on takes longer than alone.
LATENCY = 3e-4


@dataclass(frozen=True)
class Gradients:
    """The gradients of one model, in the order in which a step has them.

    `sizes`: bytes, `ready`: seconds from the step's begin, `runs`: the places of those that travel
    together, `backward`: seconds until the backward pass is over.
    """

    sizes: tuple[int, ...]
    ready: tuple[float, ...]
    runs: Runs
    backward: float


def gradients(step: Step, ops: Sequence[Op]) -> Gradients | None:
    """Return the gradients in a rank's profile, and when each is ready. None where the step's ranks
    exchange none. Raises UsageError where they travel in another way than those of one model in the
    order in which they are there.

    DDP marks its handling of a gradient that has been computed, and PyTorch marks each requested
    sum: both are nodes of the step's chain.
    """
    sizes: list[int] = []
    ready: list[float] = []
    runs: list[tuple[int, ...]] = []
    waiting: list[int] = []
    others: list[int] = []  # sums of something else, by their bytes
    dtypes: set[str] = set()
    again = False  # a forward pass follows gradients
    for node in step.nodes:
        again |= (
            bool(sizes) and node.name.startswith("forward/") and not node.type.startswith(_SELF)
        )
        if _COMPUTED.fullmatch(node.type):
            if again:
                raise UsageError(
                    f"step {step.name!r} sends gradients after each of several backward passes",
                    remedy="accumulate them first, with no_sync() of DDP, and profile again",
                )
            dtypes.add(_tensor(node, ops).dtype)
            waiting.append(_tensor(node, ops).bytes)
            sizes.append(waiting[-1])
            ready.append(_end(node))
        elif node.type == ALLREDUCE and not waiting:
            others.append(node.output_bytes)
        elif node.type == ALLREDUCE:
            if sum(waiting) != node.output_bytes:
                raise UsageError(
                    f"step {step.name!r} does not send its gradients in the order in which it "
                    "computes them; DDP does so for one model without unused parameters",
                    remedy="use one DDP model that uses all its parameters, and profile again",
                )
            runs.append(tuple(range(len(sizes) - len(waiting), len(sizes))))
            waiting = []
    if not sizes:
        return None
    if _FLAG * len(sizes) in others:
        raise UsageError(
            f"the model of step {step.name!r} uses find_unused_parameters, with which DDP never "
            "changes its buckets",
            remedy="omit find_unused_parameters if all parameters are used, and profile again",
        )
    if len(dtypes) > 1:
        raise UsageError(
            f"the gradients of step {step.name!r} have the types {' and '.join(sorted(dtypes))}, "
            "and DDP puts different types into different buckets",
            remedy="use one type for all parameters, and profile again",
        )
    if waiting:
        raise UsageError(
            f"{len(waiting)} gradients of step {step.name!r} were not sent in a bucket",
            remedy="profile the job again",
        )
    backward = [_end(node) for node in step.nodes if node.name.startswith("backward/")]
    return Gradients(tuple(sizes), tuple(ready), tuple(runs), max(backward, default=max(ready)))


def cost(profile: Profile, least: float = LATENCY) -> tuple[Cost, str]:
    """Return the cost of a transfer, with at least `least` seconds that are the same for any size,
    and the sentence on the source of the figures.

    Takes the fastest of each size, because most wait for a rank that is late. Raises UsageError
    where no transfer was seen.
    """
    fastest: dict[int, float] = defaultdict(lambda: math.inf)
    for step in profile.steps:
        for one in step.collectives:
            fastest[one.bytes] = min(fastest[one.bytes], one.took.min)
    if not fastest:
        raise UsageError(
            "the profile contains no transfers between ranks",
            remedy="profile all ranks of the job: dltune profile -- torchrun ... train.py",
        )
    sizes = sorted(fastest)
    latency = least
    if len(sizes) > 1:
        line = statistics.linear_regression(sizes, [fastest[size] for size in sizes])
        latency = max(least, line.intercept)
    beyond = sum(size * max(0.0, fastest[size] - latency) for size in sizes)
    paid = Cost(latency, beyond / sum(size**2 for size in sizes))
    assumed = " (assumed minimum)" * (latency == least > 0)
    return paid, (
        f"a transfer takes {latency * 1e6:.0f} us{assumed} plus {paid.per_byte * 1e9:.3g} ns "
        f"per byte (from the fastest transfer of each of {counted(len(sizes), 'size')})"
    )


def _tensor(node: Node, ops: Sequence[Op]) -> TensorType:
    """Return the tensor that is sent. Raises UsageError where the profile does not have it."""
    try:
        key = graph.parse_key(ops[node.op].key) if node.op is not None else None
    except ValueError:
        key = None
    if key is None or not key.inputs or not key.inputs[0].bytes:
        raise UsageError(
            f"the profile does not contain the size of the gradient of {node.name}",
            remedy="profile the job again",
        )
    return key.inputs[0]


def _end(node: Node) -> float:
    return node.end or 0.0


# Other buckets must make the predicted step shorter by this part: the cost of each to a rank that
# computes on the same cores is not in the prediction. Ways that differ by less than the second
# figure are as good.
WORTH, ALIKE = 0.02, 0.005
# the first PyTorch that was tried with a limit for each bucket; others have one for all
LIMITS_EACH = (2, 13)


@dataclass(frozen=True)
class Decided:
    section: Buckets
    reasons: tuple[str, ...]


def decide(profile: Profile) -> Decided:
    """Raises UsageError where the profile is not of a rank whose gradients DDP exchanges."""
    if not profile.framework.capabilities.exchanges_buckets:
        raise UsageError(
            "buckets apply only to PyTorch's DistributedDataParallel, but this job ran on "
            f"{profile.framework.title}",
            remedy="for a job on Horovod, use dltune plan allreduce",
        )
    exchanged = [
        (step.signature, step.wall.median, found)
        for step in profile.steps
        if (found := gradients(step, profile.ops))
    ]
    if not exchanged:
        raise UsageError(
            "the profile contains no step in which DistributedDataParallel exchanges gradients",
            remedy="profile all ranks of the job: dltune profile -- torchrun ... train.py",
        )
    paid, how = cost(profile)
    if any(_until(one.runs, one, paid) > seconds for _, seconds, one in exchanged):
        paid, how = cost(profile, 0.0)  # the job has more transfers than time for that latency
    models, reasons = [], [how]
    for signature, seconds, found in exchanged:
        limits, least = _best(found, paid, profile.framework)
        rest = max(0.0, seconds - _until(found.runs, found, paid))
        predicted = rest + least
        if predicted > seconds * (1 - WORTH):
            limits, predicted = (), seconds
            reasons.append(
                f"step {signature} keeps its buckets: no other buckets are predicted to shorten it "
                f"by {WORTH:.0%} or more"
            )
        before = tuple(sum(found.sizes[k] for k in run) for run in found.runs)
        planned = filled(found.sizes, limits) if limits else before
        models.append(Model(signature, found.sizes, before, limits, planned, seconds, predicted))
    if profile.framework.release < LIMITS_EACH:
        reasons.append(f"{profile.framework.title} supports only one size for all buckets")
    return Decided(Buckets(tuple(models), paid.latency, paid.per_byte), tuple(reasons))


def _best(found: Gradients, paid: Cost, framework: Framework) -> tuple[tuple[int, ...], float]:
    """Return the limits, and the seconds until all has come; among ways that are as good, the way
    with the fewest buckets."""
    each = framework.release >= LIMITS_EACH
    ways = [
        (limits, _until(runs, found, paid))
        for limits, runs in (_cuts(found, paid) if each else _alike(found))
    ]
    least = min(seconds for _, seconds in ways)
    return next(way for way in ways if way[1] <= least * (1 + ALIKE))


def _cuts(found: Gradients, paid: Cost) -> Iterator[tuple[tuple[int, ...], Runs]]:
    """Fewest buckets first."""
    free = [0] * len(found.sizes)
    for runs in partitions(free, found.sizes, found.ready, paid, sum(found.sizes)):
        yield tuple(sum(found.sizes[k] for k in run) for run in runs), runs


def _alike(found: Gradients) -> Iterator[tuple[tuple[int, ...], Runs]]:
    for count in range(1, MOST + 1):
        limits = (-(-sum(found.sizes) // count),)
        yield limits, _runs(found.sizes, filled(found.sizes, limits))


def _runs(sizes: Sequence[int], buckets: Sequence[int]) -> Runs:
    runs, begin = [], 0
    for bytes in buckets:
        end, held = begin, 0
        while held < bytes:
            held += sizes[end]
            end += 1
        runs.append(tuple(range(begin, end)))
        begin = end
    return tuple(runs)


def _until(runs: Runs, found: Gradients, paid: Cost) -> float:
    """Seconds from the step's begin until all gradients have come and the backward pass is over."""
    return max(found.backward, ended(runs, found.sizes, found.ready, paid))
