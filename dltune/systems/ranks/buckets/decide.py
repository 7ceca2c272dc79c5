"""The division of the gradients into buckets under which a step is predicted shortest.

Gradients travel in the order in which the backward pass has them, which DDP keeps by itself: no
other order ends sooner, as long as one bucket travels at a time and all are waited for. A bucket
leaves when its last gradient is there and the previous bucket has come; the optimizer begins when
the last has. The rest of a step takes its measured time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dltune.base.errors import UsageError
from dltune.schemas.profile import Framework, Profile
from dltune.simulate.overlap import MOST, Cost, Runs, ended, partitions
from dltune.systems.ranks.buckets.gradients import Gradients, cost, gradients
from dltune.systems.ranks.buckets.section import Buckets, Model, filled

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
