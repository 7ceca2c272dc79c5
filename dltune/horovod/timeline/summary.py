"""What a timeline comes to: cycles, negotiations, batches, and what each tensor waited for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from dltune.documents.horovod import Cycles, Distribution, Tensor, Timeline, TransferCost
from dltune.documents.sections.allreduce import Controller
from dltune.horovod.distribution import distribution
from dltune.horovod.timeline.file import recording
from dltune.horovod.timeline.recorded import Batch, Negotiation, Recording, steps

CYCLE_TIME = 1e-3  # seconds; HOROVOD_CYCLE_TIME when it is not set (operations.cc)
_WARM_UP = 5  # steps
_ENOUGH, _MANY = 40, 10  # collectives, and times as large, to tell latency from bandwidth


def read(path: Path, *, cycle_time: float = CYCLE_TIME) -> Timeline:
    """What a timeline tells, summed up. `cycle_time`: HOROVOD_CYCLE_TIME in seconds, which is not
    in the file.

    Raises UsageError when the file cannot be read, is empty or is no Horovod timeline.
    """
    return summary(recording(path), cycle_time=cycle_time)


def summary(found: Recording, *, cycle_time: float = CYCLE_TIME) -> Timeline:
    """As `read`, from a recording."""
    queued = list(_queues(found))
    waited: dict[str, list[float]] = {}
    for tensor, seconds in queued:
        waited.setdefault(tensor, []).append(seconds)
    agreed: dict[str, list[float]] = {}
    for each in found.negotiations:
        agreed.setdefault(each.tensor, []).append(each.end - each.start)
    sent: dict[str, list[float]] = {}
    for batch in found.batches:
        for tensor in batch.tensors:
            sent.setdefault(tensor, []).append(batch.transfer)
    answered = len(found.negotiations)
    return Timeline(
        path=str(found.path),
        seconds=found.seconds,
        events=found.events,
        truncated=found.truncated,
        controller=_controller(found.batches),
        cycles=_cycles(found, cycle_time),
        batches=len(found.batches),
        fused=distribution([len(batch.tensors) for batch in found.batches]),
        cached=sum(n.cached for n in found.negotiations) / answered if answered else None,
        negotiation=distribution([n.end - n.start for n in found.negotiations]),
        queue=distribution([seconds for _, seconds in queued]),
        transfer=distribution([batch.transfer for batch in found.batches]),
        late=_late(found.negotiations),
        tensors=tuple(
            Tensor(
                name=name,
                times=len(sent[name]),
                bytes=found.sizes.get(name),
                negotiation=distribution(agreed.get(name, [])),
                queue=distribution(waited.get(name, [])),
                transfer=distribution(sent[name]),
            )
            for name in sent
        ),
        step=_step(found.batches),
        cost=_cost(found.batches),
    )


def _queues(found: Recording) -> Iterator[tuple[str, float]]:
    """From the end of each tensor's negotiation until its collective began."""
    agreed: dict[str, list[float]] = {}
    for negotiation in reversed(found.negotiations):
        agreed.setdefault(negotiation.tensor, []).append(negotiation.end)
    for batch in found.batches:
        for tensor in batch.tensors:
            ends = agreed.get(tensor)
            # an operation whose negotiation was not recorded stands before those that were
            if ends and ends[-1] <= batch.start:
                end = ends.pop()
                if batch.sent is not None:
                    yield tensor, batch.sent - end


def _step(batches: Sequence[Batch]) -> Distribution | None:
    """The first steps fill caches and pools; they are left out."""
    ends = [step[-1].end for step in steps(batches)][_WARM_UP:]
    if len(ends) < 2:
        return None
    return distribution([after - end for end, after in itertools.pairwise(ends)])


def _cost(batches: Sequence[Batch]) -> TransferCost | None:
    """From the fastest tenth of the smaller half of collectives, and, for each byte beyond, from
    the fastest twentieth of the largest quarter.

    Most wait for a rank that is late, or for a core: what is left when none does is the network.
    """
    sized = sorted((batch.bytes, batch.transfer) for batch in batches if batch.bytes)
    if len(sized) < _ENOUGH:
        return None
    small = sorted(seconds for _, seconds in sized[: len(sized) // 2])
    fastest = small[: len(small) // 10]
    latency = math.fsum(fastest) / len(fastest)
    large = sized[-(len(sized) // 4) :]
    if large[0][0] <= _MANY * sized[0][0]:
        return TransferCost(latency, 0.0)  # all alike: what of it is for the bytes cannot be told
    each = sorted(max(0.0, seconds - latency) / size for size, seconds in large)
    return TransferCost(latency, each[len(each) // 20])


def _controller(batches: Sequence[Batch]) -> Controller | None:
    for batch in batches:
        if batch.library == "MPI":
            return "mpi"
        if batch.library == "GLOO":
            return "gloo"
    return None


def _cycles(found: Recording, setting: float) -> Cycles | None:
    starts = found.cycles
    if len(starts) < 2:
        return None
    sent = iter([*(batch.start for batch in found.batches), math.inf])
    transfer = next(sent)
    periods, idle = [], []
    for start, after in itertools.pairwise(starts):
        while transfer < start:
            transfer = next(sent)
        periods.append(after - start)
        if transfer >= after:
            idle.append(after - start)
    # A cycle that took longer than the setting did not sleep; an idle one can only have waited for
    # another rank. Both are late by the same amount, and the marks do not tell them apart.
    late = [max(0.0, period - setting) for period in idle]
    return Cycles(
        setting=setting,
        rate=len(periods) / (starts[-1] - starts[0]) if starts[-1] > starts[0] else 0.0,
        period=distribution(periods),
        oversleep=distribution(late),
        empty=len(idle) / len(periods),
    )


def _late(negotiations: Sequence[Negotiation]) -> dict[str, float]:
    told = [n.last for n in negotiations if n.last is not None]
    ranks = sorted({rank for last in told for rank in last})
    return {str(rank): sum(rank in last for last in told) / len(told) for rank in ranks}
