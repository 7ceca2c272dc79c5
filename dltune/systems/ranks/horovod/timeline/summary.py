"""Summary of a timeline: cycles, negotiations, batches, and the waiting times of each tensor."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dltune.systems.ranks.allreduce.section import Controller
from dltune.systems.ranks.horovod.distribution import distribution
from dltune.systems.ranks.horovod.timeline.file import recording
from dltune.systems.ranks.horovod.timeline.recorded import (
    Batch,
    Negotiation,
    Recording,
    steps,
)
from dltune.systems.ranks.schemas.horovod import (
    Cycles,
    Distribution,
    Tensor,
    Timeline,
    TransferCost,
)

CYCLE_TIME = 1e-3  # seconds; HOROVOD_CYCLE_TIME when it is not set (operations.cc of 0.28)
_WARM_UP = 5  # steps
_LIBRARIES: dict[str | None, Controller] = {"MPI": "mpi", "GLOO": "gloo"}
_ENOUGH, _MANY = 40, 10  # collectives, and times as large, to separate latency from bandwidth


def read(path: Path, *, cycle_time: float = CYCLE_TIME) -> Timeline:
    """Return the summary of a timeline. `cycle_time`: HOROVOD_CYCLE_TIME in seconds, which is not
    in the file.

    Raises UsageError when the file cannot be read, is empty or is no Horovod timeline.
    """
    return summary(recording(path), cycle_time=cycle_time)


def summary(record: Recording, *, cycle_time: float = CYCLE_TIME) -> Timeline:
    """Return the same as `read`, from a recording."""
    queued = list(_queues(record))
    waited = _by_tensor(queued)
    agreed = _by_tensor((n.tensor, n.end - n.start) for n in record.negotiations)
    sent = _by_tensor((tensor, one.transfer) for one in record.batches for tensor in one.tensors)
    answered = len(record.negotiations)
    return Timeline(
        path=str(record.path),
        seconds=record.seconds,
        events=record.events,
        truncated=record.truncated,
        controller=_controller(record.batches),
        cycles=_cycles(record, cycle_time),
        batches=len(record.batches),
        fused=distribution([len(batch.tensors) for batch in record.batches]),
        cached=sum(n.cached for n in record.negotiations) / answered if answered else None,
        negotiation=distribution([n.end - n.start for n in record.negotiations]),
        queue=distribution([seconds for _, seconds in queued]),
        transfer=distribution([batch.transfer for batch in record.batches]),
        late=_late(record.negotiations),
        tensors=tuple(
            Tensor(
                name=name,
                times=len(transfers),
                bytes=record.sizes.get(name),
                negotiation=distribution(agreed[name]),
                queue=distribution(waited[name]),
                transfer=distribution(transfers),
            )
            for name, transfers in sent.items()
        ),
        step=_step(record.batches),
        cost=_cost(record.batches),
    )


def _by_tensor(times: Iterable[tuple[str, float]]) -> defaultdict[str, list[float]]:
    each: defaultdict[str, list[float]] = defaultdict(list)
    for tensor, seconds in times:
        each[tensor].append(seconds)
    return each


def _queues(record: Recording) -> Iterator[tuple[str, float]]:
    """From the end of each tensor's negotiation until its collective began."""
    agreed = _by_tensor((n.tensor, n.end) for n in reversed(record.negotiations))
    for batch in record.batches:
        for tensor in batch.tensors:
            ends = agreed[tensor]
            # an operation whose negotiation was not recorded comes before those that were
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
    """Return the cost from the fastest tenth of the smaller half of collectives, and, for each byte
    beyond, from the fastest twentieth of the largest quarter.

    Most wait for a rank that is late, or for a core: the time that remains when none does is the
    network's.
    """
    sized = sorted((batch.bytes, batch.transfer) for batch in batches if batch.bytes)
    if len(sized) < _ENOUGH:
        return None
    small = sorted(seconds for _, seconds in sized[: len(sized) // 2])
    fastest = small[: len(small) // 10]
    latency = math.fsum(fastest) / len(fastest)
    large = sized[-(len(sized) // 4) :]
    if large[0][0] <= _MANY * sized[0][0]:
        return TransferCost(latency, 0.0)  # all alike: the part that is for the bytes is unknown
    each = sorted(max(0.0, seconds - latency) / size for size, seconds in large)
    return TransferCost(latency, each[len(each) // 20])


def _controller(batches: Sequence[Batch]) -> Controller | None:
    names = (batch.library for batch in batches)
    return next((_LIBRARIES[name] for name in names if name in _LIBRARIES), None)


def _cycles(record: Recording, setting: float) -> Cycles | None:
    starts = record.cycles
    if len(starts) < 2:
        return None
    sent = sorted(batch.start for batch in record.batches)
    before = [bisect_left(sent, start) for start in starts]
    periods = [after - start for start, after in itertools.pairwise(starts)]
    idle = [periods[i] for i in range(len(periods)) if before[i] == before[i + 1]]
    # A cycle that took longer than the setting did not sleep; an idle cycle can only have waited
    # for another rank. Both are late by the same amount, and the marks do not distinguish them.
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
