"""The plan's section on buckets: which gradients of PyTorch's DistributedDataParallel (DDP) travel
together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec

from dltune.documents.faults import AMOUNT, POSITIVE, at_least, each, empty, repeated


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One that is trained by ranks. `signature`: of its step's graph.

    `gradients`: bytes of each, in the order in which a step has them, by which the model is
    recognised in the job. `before`: bytes of the buckets that it has by itself. `limits`: those
    that DDP is given: it fills a bucket until it holds so many bytes or more, the last limit is
    that of all further ones (empty: the model is left as it is). `planned`: bytes of the buckets
    that come of them. `seconds` of a step as it is, and `predicted` ones with these buckets.
    """

    signature: str
    gradients: tuple[int, ...]
    before: tuple[int, ...]
    limits: tuple[int, ...]
    planned: tuple[int, ...]
    seconds: float
    predicted: float


class Buckets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`latency`: seconds that a transfer takes whatever its size, `per_byte`: seconds for each byte
    besides."""

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
        f"{here}.models", "gradients", (tuple(sorted(m.gradients)) for m in section.models)
    )
    for at, model in each(f"{here}.models", section.models, "signature"):
        yield from empty(at, model, "gradients")
        yield from at_least(1).faults(f"{at}.gradients", *model.gradients)
        yield from at_least(1).faults(f"{at}.limits", *model.limits)
        yield from POSITIVE.of(at, model, "seconds", "predicted")
        ends = set(itertools.accumulate(model.gradients))
        if not set(itertools.accumulate(model.before)) <= ends:
            yield f"{at}.before must be made of whole gradients"
        wanted = filled(model.gradients, model.limits) if model.limits else model.before
        if model.planned != wanted:
            yield f"{at}.planned must be {wanted}, what the limits come to, got {model.planned}"
