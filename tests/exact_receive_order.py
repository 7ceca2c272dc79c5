"""The best order of a few receives over one channel, exactly."""

from __future__ import annotations

import heapq

from dltune.simulate.overlap import Partition

MOST = 20  # receives: there are 2**20 sets of them


def optimal(partition: Partition) -> list[int]:
    """An order with the least makespan: branch and bound over the sets of receives that have come,
    the most promising first.

    While a receive travels, what has become ready before it can be computed; all the rest comes
    after it. So a step takes, at the worst of its receives, the time until that has come and the
    work that no earlier receive made ready; what a set of receives leads to does not depend on
    their order, and a set need be looked at once. Raises ValueError for more than MOST receives,
    or several channels.
    """
    count = len(partition)
    if count > MOST or partition.channels > 1:
        raise ValueError(f"exact orders are for one channel and at most {MOST} receives")
    transfer, work = partition.transfer.tolist(), partition.work.tolist()
    needs = [sum(1 << i for i in row.nonzero()[0].tolist()) for row in partition.needs]
    whole = (1 << count) - 1
    # (makespan so far, receives that have come), the least first
    waiting: list[tuple[int, int]] = [(0, 0)]
    before: dict[int, int] = {}
    least = {0: 0}
    while waiting:
        worst, come = heapq.heappop(waiting)
        if come == whole:
            break
        if worst > least[come]:
            continue
        time = sum(transfer[i] for i in range(count) if come >> i & 1)
        rest = sum(w for w, need in zip(work, needs, strict=True) if need & ~come)
        for receive in range(count):
            bit = 1 << receive
            if come & bit:
                continue
            end = max(worst, time + transfer[receive] + rest)
            after = come | bit
            if end < least.get(after, end + 1):
                least[after], before[after] = end, receive
                heapq.heappush(waiting, (end, after))
    order: list[int] = []
    while whole:
        order.append(before[whole])
        whole &= ~(1 << order[-1])
    return order[::-1]
