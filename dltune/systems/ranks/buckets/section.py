"""The plan's section on buckets: gradients of PyTorch's DistributedDataParallel (DDP) that travel
together. Sizes are in bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated

import msgspec

from dltune.base.documents import AMOUNT, FILLED, LABEL, POSITIVE, at_least, repeated


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model that ranks train.

    `signature`: graph of its step.
    `gradients`: size of each gradient in the order of a step; identifies the model in the job.
    `before`: sizes of DDP's own buckets.
    `limits`: limits passed to DDP. A bucket is complete when it reaches its limit; the last limit
      applies to all further buckets. Empty: the model is left as it is.
    `planned`: sizes of the resulting buckets.
    `seconds`, `predicted`: step time without and with the plan.
    """

    signature: Annotated[str, LABEL]
    gradients: Annotated[tuple[Annotated[int, at_least(1)], ...], FILLED]
    before: tuple[int, ...]
    limits: tuple[Annotated[int, at_least(1)], ...]
    planned: tuple[int, ...]
    seconds: Annotated[float, POSITIVE]
    predicted: Annotated[float, POSITIVE]

    def relation_faults(self) -> Iterator[str]:
        ends = set(itertools.accumulate(self.gradients))
        if not set(itertools.accumulate(self.before)) <= ends:
            yield f"before must consist of whole gradients, got {self.before}"
        wanted = filled(self.gradients, self.limits) if self.limits else self.before
        if self.planned != wanted:
            yield f"planned must be {wanted} (from limits and gradients), got {self.planned}"


class Buckets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Buckets of DDP.

    `models`: models that ranks train.
    `latency`: seconds per transfer.
    `per_byte`: additional seconds per byte.
    """

    models: Annotated[tuple[Model, ...], FILLED]
    latency: Annotated[float, AMOUNT]
    per_byte: Annotated[float, AMOUNT]

    def relation_faults(self) -> Iterator[str]:
        gradients = (tuple(sorted(model.gradients)) for model in self.models)
        yield from repeated("models", "list of gradients", gradients)


def filled(gradients: tuple[int, ...], limits: tuple[int, ...]) -> tuple[int, ...]:
    """Bytes of the buckets into which DDP puts gradients that come in this order."""
    buckets: list[int] = []
    held = 0
    for bytes in gradients:
        held += bytes
        if held >= limits[min(len(buckets), len(limits) - 1)]:
            buckets.append(held)
            held = 0
    return (*buckets, held) if held else tuple(buckets)
