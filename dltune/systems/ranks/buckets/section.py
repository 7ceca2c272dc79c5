"""The plan's section on buckets: gradients of PyTorch's DistributedDataParallel (DDP) that travel
together. Sizes are in bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec

from dltune.base.documents import AMOUNT, POSITIVE, at_least, each, empty, repeated


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

    signature: str
    gradients: tuple[int, ...]
    before: tuple[int, ...]
    limits: tuple[int, ...]
    planned: tuple[int, ...]
    seconds: float
    predicted: float


class Buckets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Buckets of DDP.

    `models`: models that ranks train.
    `latency`: seconds per transfer.
    `per_byte`: additional seconds per byte.
    """

    models: tuple[Model, ...]
    latency: float
    per_byte: float


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


def faults(section: Buckets) -> Iterator[str]:
    """All that cannot be done, one sentence each, the field's path first."""
    here = "buckets"
    yield from AMOUNT.of(here, section, "latency", "per_byte")
    yield from empty(here, section, "models")
    yield from repeated(
        f"{here}.models", "list of gradients", (tuple(sorted(m.gradients)) for m in section.models)
    )
    for at, model in each(f"{here}.models", section.models, "signature"):
        yield from empty(at, model, "gradients")
        yield from at_least(1).faults(f"{at}.gradients", *model.gradients)
        yield from at_least(1).faults(f"{at}.limits", *model.limits)
        yield from POSITIVE.of(at, model, "seconds", "predicted")
        ends = set(itertools.accumulate(model.gradients))
        if not set(itertools.accumulate(model.before)) <= ends:
            yield f"{at}.before must consist of whole gradients, got {model.before}"
        wanted = filled(model.gradients, model.limits) if model.limits else model.before
        if model.planned != wanted:
            yield f"{at}.planned must be {wanted} (from limits and gradients), got {model.planned}"
