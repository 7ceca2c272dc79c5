"""How fast the tensors of other tasks come, seen in the job's own steps.

A worker asks for all that it needs at the start of a step, and what comes from one task comes one
after the other. So when a tensor has come tells what all that came before it took.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dltune.job import protocol
from dltune.job.record import NANOSECOND
from dltune.schemas.profile import Link, Step

# what a cause must leave unexplained at most, of what another leaves, to be taken in its place
CLEARLY = 0.8

Observed = tuple[Step, Sequence[protocol.Execution]]


def links(steps: Iterable[Observed]) -> tuple[Link, ...]:
    """A link for each task that the steps, with executions of theirs, receive from.

    What has no bytes, and answers, come when something else is done, and tell of no link."""
    arrivals: dict[tuple[str, str], list[_Arrivals]] = defaultdict(list)
    for step, executions in steps:
        sizes: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        for number, node in enumerate(step.nodes):
            between = node.received
            size = sum(tensor.bytes for tensor in node.outputs) if between else 0
            if between and size and not (node.partner and node.partner.answer):
                sizes[between][number] = size
        for tasks, execution in itertools.product(sizes, executions):
            arrivals[tasks].append(_Arrivals.of(execution, sizes[tasks]))
    return tuple(
        _link(*tasks, [a for a in came if len(a.times)]) for tasks, came in arrivals.items()
    )


class _Arrivals(NamedTuple):
    """In one step. `times`: seconds at which they came, rising; `before`: (arrivals, 2), how many
    had come by then and how many bytes."""

    times: NDArray[np.float64]
    before: NDArray[np.float64]

    @classmethod
    def of(cls, execution: protocol.Execution, sizes: Mapping[int, int]) -> _Arrivals:
        came = sorted((end, sizes[node]) for node, *_, end, _ in execution.events if node in sizes)
        times = np.array([end * NANOSECOND for end, _ in came])
        loads = np.cumsum([size for _, size in came])
        return cls(times, np.column_stack((np.arange(1, len(came) + 1), loads)))


def _link(sender: str, receiver: str, arrivals: Sequence[_Arrivals]) -> Link:
    if not arrivals:
        return Link(sender, receiver, 0.0, 0.0, None, 0, 0.0)
    # steps begin more or less late: what is told by them is the slope
    times = np.concatenate([t - t.mean() for t, _ in arrivals])
    before = np.concatenate([x - x.mean(axis=0) for _, x in arrivals])
    each, per_byte = costs = _least_squares(before, times)
    delay = statistics.median(float((t - x @ costs).mean()) for t, x in arrivals)
    variance = float(times @ times)
    missed = float(np.sum((times - before @ costs) ** 2))
    return Link(
        sender,
        receiver,
        delay=max(0.0, delay),
        each=float(each),
        bandwidth=float(1 / per_byte) if per_byte > 0 else None,
        transfers=len(times),
        fit=max(0.0, 1 - missed / variance) if variance else 0.0,
    )


def _least_squares(
    columns: NDArray[np.float64], wanted: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Two factors, neither below 0, with the least sum of squared differences. Where one does
    nearly as well as the other, as with tensors of one size, it is the second, of the bytes."""
    best, least = np.zeros(2), float(wanted @ wanted)
    for used, better in (([1], 1.0), ([0], CLEARLY), ([0, 1], 1.0)):
        factors = np.zeros(2)
        factors[used] = np.linalg.lstsq(columns[:, used], wanted, rcond=None)[0]
        missed = float(np.sum((wanted - columns @ factors) ** 2))
        if (factors >= 0).all() and missed < better * least:
            best, least = factors, missed
    return best
