"""Blocks of a step that are alike and feed each other, such as the layers of a transformer.

Each block has its part of the forward pass, of the backward pass and of the update of variables.

Ours. Names prove nothing, and graph rewriters change the order of terms and factors. A block is
shifted onto the next block node by node, starting from a pair of ops: first those whose
surroundings distinguish them best (colour refinement of Weisfeiler and Leman, seeded matching as of
Yartseva and Grossglauser). Nodes that do not go on alike from block to block are taken out again.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from dltune.schemas.profile import Node, Op, Step

RADIUS = 8  # edges around a node that distinguish it from others
SEEDS = 40  # pairs that are tried, the longest ops first
# kernels whose inputs a rewriter can reorder
_COMMUTATIVE = ("Add", "AddV2", "AddN", "Mul", "Maximum", "Minimum", "SquaredDifference")
_Shift = dict[int, int]
_Colours = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Read:
    """An input of a node of a block, in `row`: of the block so many later, `ahead`, or the node
    that all blocks read, where `row` is None."""

    row: int | None
    ahead: int
    shared: int | None = None


@dataclass(frozen=True, eq=False)
class Repeat:
    """`rows`: for each node of a block, by number of the block, the node in its place there.
    `like`: of each row the number of the block that copies are made after, and what its node reads,
    by input. `cut`: a block that is in all rows, as the next one is. `blocks`: how many are alike,
    as most rows have it: those at the ends may lack some nodes."""

    rows: Sequence[Mapping[int, int]]
    like: Sequence[tuple[int, Sequence[Read]]]
    cut: int
    blocks: int


def find_repeats(step: Step, ops: Sequence[Op]) -> Repeat | None:
    """Return the repeated blocks with the most nodes in all; None where none repeats."""
    return max(
        _found(_Surroundings(step.nodes, ops)),
        key=lambda one: sum(map(len, one.rows)),
        default=None,
    )


def _found(of: _Surroundings) -> list[Repeat]:
    found: list[Repeat] = []
    covered: set[int] = set()
    for seed in itertools.islice((one for one in of.seeds() if not covered & {*one}), SEEDS):
        if repeat := _repeat(of, seed, of.shift(seed)):
            found.append(repeat)
            covered.update(node for row in repeat.rows for node in row.values())
    return found


class _Surroundings:
    """`reads` and `readers`: by node its neighbours by what their edge is: the input's slot, 0
    where inputs can change places, and the output's. Control edges are none."""

    def __init__(self, nodes: Sequence[Node], ops: Sequence[Op]) -> None:
        self.nodes = nodes
        kinds = [_kind(node, ops) for node in nodes]
        self.reads: list[dict[Hashable, list[int]]] = [defaultdict(list) for _ in nodes]
        self.readers: list[dict[Hashable, list[int]]] = [defaultdict(list) for _ in nodes]
        for reader, node in enumerate(nodes):
            slots = node.slots or (0,) * len(node.inputs)
            for place, (one, slot) in enumerate(zip(node.inputs, slots, strict=True)):
                edge = (0 if _commutes(node) else place, slot)
                self.reads[reader][edge].append(one)
                self.readers[one][edge].append(reader)
        self.colours = self._refined(kinds)
        self.began = [-1.0 if node.start is None else node.start for node in nodes]

    def _refined(self, kinds: Sequence[Hashable]) -> _Colours:
        """By radius, the nodes' colours."""
        numbers: dict[Hashable, int] = {}
        colours = [[numbers.setdefault(kind, len(numbers)) for kind in kinds]]
        for _ in range(RADIUS):
            last, numbers = colours[-1], {}
            around = [
                (
                    last[node],
                    *(
                        tuple(
                            sorted((edge, last[one]) for edge, row in side.items() for one in row)
                        )
                        for side in (self.reads[node], self.readers[node])
                    ),
                )
                for node in range(len(kinds))
            ]
            colours.append([numbers.setdefault(one, len(numbers)) for one in around])
        return colours

    def seeds(self) -> list[tuple[int, int]]:
        """Nodes one after the other that are alike in the widest surroundings in which any of their
        kind are, the longest first."""
        found: list[tuple[float, int, int]] = []
        seen: set[int] = set()
        for colours in reversed(self.colours):
            groups: dict[int, list[int]] = defaultdict(list)
            for node in range(len(self.nodes)):
                if self.began[node] >= 0 and self.colours[0][node] not in seen:
                    groups[colours[node]].append(node)
            for group in groups.values():
                if len(group) > 1:
                    seen.add(self.colours[0][group[0]])
                    group.sort(key=self.began.__getitem__)
                    at = (len(group) - 2) // 2
                    found.append((-self._seconds(group[at]), group[at], group[at + 1]))
        return [(first, second) for _, first, second in sorted(found)]

    def _seconds(self, node: int) -> float:
        return (self.nodes[node].end or 0.0) - self.began[node]

    def shift(self, seed: tuple[int, int]) -> _Shift:
        """From node to node of the next block, as far as it goes from this pair on."""
        onto: _Shift = {}
        back: _Shift = {}
        heap = [(0, 0, *seed)]
        count = itertools.count(1)
        while heap:
            _, _, here, there = heapq.heappop(heap)
            if here in onto or there in back or _leads(onto, there, here):
                continue
            onto[here], back[there] = there, here
            for side in (self.reads, self.readers):
                for edge, row in side[here].items():
                    for one, other in itertools.product(row, side[there].get(edge, ())):
                        if one == other or one in onto or other in back:
                            continue
                        if alike := self._alike(one, other):
                            heapq.heappush(heap, (-alike, next(count), one, other))
        return onto

    def _alike(self, one: int, other: int) -> int:
        """The number of radii in which they are."""
        return sum(
            1
            for _ in itertools.takewhile(
                lambda colours: colours[one] == colours[other], self.colours
            )
        )


def _kind(node: Node, ops: Sequence[Op]) -> Hashable:
    """Return the properties that nodes with the same work share."""
    outputs = tuple((one.dtype, one.bytes) for one in node.outputs)
    if node.op is None:
        return node.type, outputs
    if _commutes(node):
        op = ops[node.op]
        return node.type, tuple(sorted(op.inputs)), op.key.partition("){")[2], outputs
    return node.type, node.op, outputs


def _commutes(node: Node) -> bool:
    return node.type.lstrip("_").removeprefix("Mkl") in _COMMUTATIVE


def _leads(onto: _Shift, start: int, end: int) -> bool:
    while start in onto:
        start = onto[start]
        if start == end:
            return True
    return start == end


def _repeat(of: _Surroundings, seed: tuple[int, int], onto: _Shift) -> Repeat | None:
    rows = _rows(onto)
    place = {node: (row, at) for row, nodes in enumerate(rows) for at, node in enumerate(nodes)}
    kept = set(range(len(rows)))
    likes: dict[int, tuple[int, list[Read]]] = {}
    while True:
        inside = {node: at for node, at in place.items() if at[0] in kept}
        likes = {row: like for row in kept if (like := _like(of, rows[row], inside))}
        left = {row for row in likes if _goes_on(of, rows[row], inside)}
        if left == kept:
            break
        kept = left
    if place[seed[0]][0] not in kept:
        return None
    first = _aligned(place[seed[0]][0], likes)
    if not any(
        read.row is not None and read.ahead + first[read.row] != first[row]
        for row, (_, reads) in likes.items()
        if row in first
        for read in reads
    ):
        return None  # side by side
    return _numbered(rows, likes, first)


def _rows(onto: _Shift) -> list[list[int]]:
    rows = []
    for node in onto.keys() - onto.values():
        row = [node]
        while row[-1] in onto:
            row.append(onto[row[-1]])
        rows.append(row)
    return rows


def _like(
    of: _Surroundings, row: Sequence[int], inside: Mapping[int, tuple[int, int]]
) -> tuple[int, list[Read]] | None:
    """The place in the row of which most others read alike, and what is read there; None where it
    reads what copies could not."""
    reads = [_reads(of, row, at, inside) for at in range(len(row))]
    told = [None if one is None else _told(of.nodes[row[0]], one) for one in reads]
    known = Counter(one for one in told if one is not None)
    if not known:
        return None
    most, middle = max(known.values()), (len(row) - 1) / 2
    _, at = min((abs(at - middle), at) for at, one in enumerate(told) if known[one] == most)
    return at, reads[at] or []


def _told(node: Node, reads: Sequence[Read]) -> Hashable:
    return frozenset(Counter(reads).items()) if _commutes(node) else tuple(reads)


def _reads(
    of: _Surroundings, row: Sequence[int], at: int, inside: Mapping[int, tuple[int, int]]
) -> list[Read] | None:
    found = []
    beside = [set(of.nodes[row[one]].inputs) for one in (at - 1, at + 1) if 0 <= one < len(row)]
    for one in of.nodes[row[at]].inputs:
        if one in inside:
            other, there = inside[one]
            found.append(Read(other, there - at))
        elif of.nodes[one].type.endswith("Const"):
            found.append(Read(None, 0))
        elif any(one in inputs for inputs in beside):
            found.append(Read(None, 0, one))
        else:
            return None
    return found


def _goes_on(of: _Surroundings, row: Sequence[int], inside: Mapping[int, tuple[int, int]]) -> bool:
    """Return True if nothing but blocks, and nodes that gather from all of them, reads what they
    give, except at the ends."""
    readers = [
        {one for ones in of.readers[node].values() for one in ones if one not in inside}
        for node in row
    ]
    gathers = Counter(one for ones in readers for one in ones)
    own = [any(gathers[one] == 1 for one in ones) for ones in readers]
    return not any(own[1:-1]) and not all(own)


def _aligned(seed: int, likes: Mapping[int, tuple[int, Sequence[Read]]]) -> dict[int, int]:
    """By row the number of its first block, so that as much as can be is read in the same block."""
    beside: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row, (_, reads) in likes.items():
        for read in reads:
            if read.row is not None and read.row != row:
                beside[row].append((read.row, -read.ahead))
                beside[read.row].append((row, read.ahead))
    first = {seed: 0}
    for row in (waiting := [seed]):
        for other, ahead in beside[row]:
            if other not in first:
                first[other] = first[row] + ahead
                waiting.append(other)
    return first


def _numbered(
    rows: Sequence[Sequence[int]],
    likes: Mapping[int, tuple[int, Sequence[Read]]],
    first: Mapping[int, int],
) -> Repeat | None:
    begin = max(first.values())
    end = min(first[row] + len(rows[row]) for row in first)
    if end - begin < 2:
        return None
    number = {row: at for at, row in enumerate(first)}
    like = []
    for row in first:
        at, reads = likes[row]
        like.append(
            (
                first[row] + at,
                [
                    read
                    if read.row is None
                    else Read(number[read.row], read.ahead + first[read.row] - first[row])
                    for read in reads
                ],
            )
        )
    cut = (begin + end) // 2 - 1
    numbered = [dict(enumerate(rows[row], first[row])) for row in first]
    for _, reads in like:
        for read in reads:
            if read.row is not None:
                there, other = cut + read.ahead, numbered[read.row]
                if there + 1 < min(other) or there > max(other):
                    return None  # a copy would read nodes before all blocks, or behind
    blocks = Counter(map(len, numbered)).most_common(1)[0][0]
    return Repeat(numbered, like, cut, blocks)
