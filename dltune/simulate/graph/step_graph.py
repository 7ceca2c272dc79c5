"""A step of training as a graph.

A *tensor* is what a node gives out at one of its output slots. Nodes read tensors (data edges) and
may wait for nodes (control edges). The ways back of a loop are edges, too, but nothing waits for
them: what remains has no cycle.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dltune.simulate.graph.csr import (
    CSR,
    Amounts,
    Flags,
    Integers,
    Kinds,
    Numbers,
)


class Kind(enum.IntEnum):
    """What a tensor is. `ARGUMENT`: whoever runs the step hands it in."""

    RESULT = 0
    VARIABLE = 1
    CONSTANT = 2
    ARGUMENT = 3


@dataclass(frozen=True, eq=False)
class Tensors:
    """Arrays over the tensors of a graph. `producer`: the node that gives one out, at `slot`.

    `bytes`: int64. `alias`: the tensor whose memory it is, itself where it has memory of its own.
    `kind`: of `Kind`; all but results are there before the step and after it.
    """

    producer: Integers
    slot: Integers
    bytes: Amounts
    alias: Integers
    kind: Kinds

    def __len__(self) -> int:
        return len(self.producer)

    @classmethod
    def of(
        cls,
        places: Iterable[tuple[int, int]],
        bytes: Sequence[int],
        alias: Sequence[int] | None = None,
        kind: Sequence[Kind] | None = None,
    ) -> Tensors:
        """`places`: (producer, slot) of each. Without `alias` each has memory of its own, without
        `kind` all are results."""
        found = list(places)
        own = range(len(found)) if alias is None else alias
        kinds = [Kind.RESULT] * len(found) if kind is None else kind
        return cls(
            np.array([producer for producer, _ in found], np.int32),
            np.array([slot for _, slot in found], np.int32),
            np.array(bytes, np.int64),
            np.array(own, np.int32),
            np.array(kinds, np.uint8),
        )


@dataclass(frozen=True, eq=False)
class StepGraph:
    """`names` of the nodes, for people; `op`: per node the index of its op, -1 for none that takes
    time; `runs`: how often an execution runs it (0: not in this one, above 1: in a loop).

    `reads`: per node the tensors at its inputs, by input slot. `control`: per node those that it
    waits for besides. `back`: per node whether its outputs flow back in a loop.
    """

    names: Sequence[str]
    op: Integers
    runs: Numbers
    tensors: Tensors
    reads: CSR
    control: CSR
    back: Flags

    def __len__(self) -> int:
        return len(self.names)

    @functools.cached_property
    def predecessors(self) -> CSR:
        """Per node those that must have ended before it starts: of its inputs by slot, then by
        control edges; each once."""
        row = np.concatenate((self.reads.row, self.control.row))
        before = np.concatenate((self.tensors.producer[self.reads.items], self.control.items))
        forward = ~self.back[before]
        return CSR.grouped(row[forward], before[forward], len(self)).distinct()

    @functools.cached_property
    def successors(self) -> CSR:
        """Per node those that wait for it, in rising order."""
        return self.predecessors.transposed(len(self))
