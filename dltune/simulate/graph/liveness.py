"""From when to when the memory of each tensor is needed (SuperNeurons, section 3.2).

An estimate: memory that kernels take while they run is not in a graph, nor are outputs written over
an input where it does not tell whose memory a tensor is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dltune.simulate.graph.csr import Amounts, Integers
from dltune.simulate.graph.step_graph import Kind, StepGraph


@dataclass(frozen=True, eq=False)
class Lives:
    """Arrays over the tensors for which an execution took memory: from the start of the node that
    gave one out to the end of the last one that reads it, or an alias of it."""

    tensor: Integers
    begin: Amounts
    end: Amounts
    bytes: Amounts


def lives(graph: StepGraph, start: Amounts, end: Amounts) -> Lives:
    """`start` and `end`: per node, in any unit; negative for a node that did not run."""
    tensors = graph.tensors
    until = np.full(len(tensors), -1, np.int64)
    ran = (start >= 0) & (end >= 0)
    born = ran[tensors.producer]
    owned = (tensors.alias == np.arange(len(tensors))) & born & (tensors.kind == Kind.RESULT)
    reader, read = graph.reads.row, graph.reads.items
    np.maximum.at(until, tensors.alias[read[ran[reader]]], end[reader[ran[reader]]])
    np.maximum.at(until, np.flatnonzero(owned), end[tensors.producer[owned]])
    kept = np.flatnonzero(owned).astype(np.int32)
    return Lives(kept, start[tensors.producer[kept]], until[kept], tensors.bytes[kept])


def peak(found: Lives) -> tuple[int, int, list[int]]:
    """The most bytes that are needed at once, the moment from which on they are, and the tensors,
    the largest first. Memory that ends at a moment is free for what begins then."""
    real = found.end > found.begin
    moments = np.concatenate((found.end[real], found.begin[real]))
    change = np.concatenate((-found.bytes[real], found.bytes[real]))
    order = np.argsort(moments, kind="stable")
    level = np.cumsum(change[order])
    if not len(level):
        return 0, 0, []
    at = int(np.argmax(level))
    moment = int(moments[order][at])
    held = np.flatnonzero(real & (found.begin <= moment) & (found.end > moment))
    largest = held[np.argsort(-found.bytes[held], kind="stable")]
    return int(level[at]), moment, found.tensor[largest].tolist()
