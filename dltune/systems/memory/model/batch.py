"""A step with another number of examples.

A tensor of examples has the batch, or a multiple of it, as its first dimension, according to the
keys of the ops that read it. Its bytes grow with the batch, and so does the time of the ops that
read it or give it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dltune.profile.standalone import batch_of, channels_of, inputs_of
from dltune.schemas.graph import TensorType
from dltune.schemas.profile import Profile, Step
from dltune.simulate.step_graph import Flags, Kind, Tensors
from dltune.systems.memory.model.measured import MeasuredStep

# what gives a step its examples, by type
_GIVEN = ("IteratorGetNext", "Arg", "Placeholder")


@dataclass(frozen=True, eq=False)
class Batched:
    """A step as measured with `batch` examples. `grows`: by tensor, whether it holds examples."""

    step: MeasuredStep
    batch: int
    grows: Flags

    def of(self, batch: int) -> MeasuredStep:
        """The step with so many examples."""
        graph, times = self.step.graph, batch / self.batch
        tensors = graph.tensors
        bytes = np.where(self.grows, np.ceil(tensors.bytes * times), tensors.bytes)
        touched = np.zeros(len(graph), np.bool_)
        touched[tensors.producer[self.grows]] = True
        touched[graph.reads.row[self.grows[graph.reads.items]]] = True
        return replace(
            self.step,
            graph=replace(graph, tensors=replace(tensors, bytes=bytes.astype(np.int64))),
            seconds=(np.array(self.step.seconds) * np.where(touched, times, 1.0)).tolist(),
        )


def batched(profile: Profile, step: Step, found: MeasuredStep) -> Batched:
    """Raises UsageError when no op of the step has a batch dimension."""
    ops = [None if node.op is None else profile.ops[node.op] for node in step.nodes]
    timed = [op for op in ops if op is not None]
    tensors = found.graph.tensors
    shapes: dict[int, TensorType] = {}  # by tensor, from its readers' keys
    for op, row in zip(ops, found.graph.reads.lists, strict=True):
        if op is not None:
            shapes.update(zip(row, inputs_of(op.key), strict=False))
    batch, channels = _batch(step, shapes, tensors) or batch_of(timed), channels_of(timed)
    parameters = {
        shape.shape for tensor, shape in shapes.items() if tensors.kind[tensor] == Kind.VARIABLE
    }
    grows = np.zeros(len(tensors), np.bool_)
    for tensor, shape in shapes.items():
        grows[tensor] = _holds_examples(shape, batch, channels) and shape.shape not in parameters
    # a kernel's further memory, its node's last tensor, grows with its inputs
    last = np.bincount(tensors.producer, minlength=len(ops)).cumsum() - 1
    for number, row in enumerate(found.graph.reads.lists):
        if step.nodes[number].scratch and grows[row].any():
            grows[last[number]] = True
    return Batched(found, batch, grows)


def _batch(step: Step, shapes: Mapping[int, TensorType], tensors: Tensors) -> int | None:
    """Return the first dimension of most of the step's inputs."""
    given = Counter(
        shape.shape[0]
        for tensor, shape in shapes.items()
        if shape.shape and step.nodes[tensors.producer[tensor]].type.lstrip("_") in _GIVEN
    )
    return max(given, key=given.__getitem__, default=None)


def _holds_examples(tensor: TensorType, batch: int, channels: frozenset[int]) -> bool:
    if not tensor.shape or not tensor.shape[0] or tensor.shape[0] % batch:
        return False
    return (
        len(tensor.shape) > 1 or tensor.dtype.startswith("int") or tensor.shape[0] not in channels
    )
