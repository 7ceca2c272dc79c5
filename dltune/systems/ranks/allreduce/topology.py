"""TOPO, first half: a fixed order of the allreduces, from the graph that runs them.

Section 6.3.4 of the thesis: a reverse depth-first search from the fetches finds the Horovod
operations and the dependencies of each, in O(V + E). An operation's ID is its place in the order in
which all ranks transfer: parents before children, siblings as they were added to the graph, others
by their depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dltune.base.errors import UsageError


@dataclass(frozen=True)
class Topology:
    """The transfers of a graph.

    `order`: their nodes, by ID. `before`: for each ID a bit mask of the IDs whose transfers must
    have ended before its own can begin.
    """

    order: tuple[int, ...]
    before: tuple[int, ...]

    def reordered(self, ids: Sequence[int]) -> Topology:
        """The same transfers with the ID `ids[k]` as the k-th; one that is there several times
        travels in so many pieces.

        Raises ValueError when one would come before a transfer that it depends on.
        """
        new = [0] * len(self.order)
        for k, old in enumerate(ids):
            new[old] |= 1 << k
        before = []
        for k, old in enumerate(ids):
            mask = sum(new[other] for other in _bits(self.before[old]))
            if mask >> k:
                raise ValueError(f"transfer {old} would come before one that it depends on")
            before.append(mask)
        return Topology(tuple(self.order[old] for old in ids), tuple(before))


def traverse(
    inputs: Sequence[Sequence[int]], fetches: Iterable[int], places: Mapping[int, int]
) -> Topology:
    """Order of the transfers that the fetches need.

    `inputs[v]`: the nodes that node v waits for, by data or control. `places`: the transfers, each
    with its place among those that were added to the graph. Depth is the longest way from a root,
    so a parent is never as deep as its child and siblings mostly are alike; at one depth, the place
    decides. Raises UsageError when nodes wait for each other.
    """
    bit = {node: 1 << k for k, node in enumerate(sorted(places, key=places.__getitem__))}
    depth = [0] * len(inputs)
    above = [0] * len(inputs)  # transfers at the node or before it
    opened, done = bytearray(len(inputs)), bytearray(len(inputs))
    found: list[int] = []
    for fetch in fetches:
        stack = [] if done[fetch] else [(fetch, iter(inputs[fetch]))]
        opened[fetch] = 1
        while stack:
            node, parents = stack[-1]
            for parent in parents:
                if done[parent]:
                    depth[node] = max(depth[node], depth[parent] + 1)
                    above[node] |= above[parent]
                elif opened[parent]:
                    raise UsageError(
                        f"nodes {parent} and {node} of the profiled graph depend on each other: "
                        "the profile is damaged",
                        remedy="profile the job again",
                    )
                else:
                    opened[parent] = 1
                    stack.append((parent, iter(inputs[parent])))
                    break
            else:
                stack.pop()
                done[node] = 1
                if node in bit:
                    found.append(node)
                    above[node] |= bit[node]
                if stack:
                    child = stack[-1][0]
                    depth[child] = max(depth[child], depth[node] + 1)
                    above[child] |= above[node]
    order = sorted(found, key=lambda node: (depth[node], places[node]))
    number = {bit[node]: k for k, node in enumerate(order)}
    before = tuple(
        sum(1 << number[1 << k] for k in _bits(above[node] & ~bit[node])) for node in order
    )
    return Topology(tuple(order), before)


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
