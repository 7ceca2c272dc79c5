"""A worker's part of a step, as the order of its receives sees it.

Two things about an op matter for that order: how long it takes, and which receives it needs,
itself or through other ops (the paper's *communication dependency*, section 4.1). Ops that need the
same receives become ready together, so they are one row here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dltune.simulate.graph.csr import Amounts, Flags, Integers
from dltune.simulate.graph.step_graph import StepGraph
from dltune.simulate.graph.traversal import complete, reached

NANOSECONDS = 1e9  # in whole ones sums are exact, and equal sums are equal


@dataclass(frozen=True, eq=False)
class Partition:
    """Arrays over the receives, in the graph's order, and over the sets of them that ops need.

    `receives`: their nodes. `transfer`: nanoseconds that each travels alone. `channel`: over which
    it travels, from 0 on; transfers of one channel take turns, those of several go side by side.
    `needs`: (sets, receives), no two rows alike, none empty. `work`: per set, nanoseconds of the
    ops that need just this set. `free`: of the ops that need none.
    """

    receives: Integers
    transfer: Amounts
    channel: Integers
    needs: Flags
    work: Amounts
    free: int = 0

    def __len__(self) -> int:
        return len(self.receives)

    @property
    def channels(self) -> int:
        return int(self.channel.max(initial=-1)) + 1

    def load(self) -> Amounts:
        """Nanoseconds that each channel is busy."""
        return np.bincount(self.channel, self.transfer, self.channels).astype(np.int64)


def partition(
    graph: StepGraph,
    channel: Mapping[int, int],
    seconds: Sequence[float],
) -> Partition:
    """`channel`: by node, of the receives alone. `seconds`: per node, that an op runs or a receive
    travels. Raises ValueError when the graph has a cycle."""
    order = complete(graph)
    receives = sorted(channel)
    times = np.rint(np.asarray(seconds) * NANOSECONDS).astype(np.int64).tolist()
    needs = reached(order, graph.predecessors.lists, receives)
    work: dict[int, int] = {0: 0}
    for node in order:
        if node not in channel:
            work[needs[node]] = work.get(needs[node], 0) + times[node]
    free = work.pop(0)
    bytes_each = (len(receives) + 7) // 8
    packed = b"".join(one.to_bytes(bytes_each, "little") for one in work)
    rows = np.frombuffer(packed, np.uint8).reshape(len(work), bytes_each)
    flags = np.unpackbits(rows, axis=1, count=len(receives), bitorder="little").astype(np.bool_)
    return Partition(
        np.array(receives, np.int32),
        np.array([times[node] for node in receives], np.int64),
        np.array([channel[node] for node in receives], np.int32),
        flags,
        np.array(list(work.values()), np.int64),
        free,
    )
