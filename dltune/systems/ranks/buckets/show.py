"""The section on buckets, and what came of it, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dltune.base.formatting import Table, columns, counted, size
from dltune.systems.ranks.buckets.section import Buckets, Model
from dltune.views import Headline, Section, View


@dataclass(frozen=True)
class Filled:
    """In one rank: bytes of the buckets that its model has got, of so many `gradients`; none where
    that is not known."""

    rank: int
    pid: int
    gradients: int
    buckets: tuple[int, ...]
    as_planned: bool


@dataclass(frozen=True)
class BucketsOutcome:
    """`left`: the parts left unchanged, and why, sentences."""

    ranks: tuple[Filled, ...]
    left: tuple[str, ...] = ()


def choice(section: Buckets) -> str:
    """In a few words."""
    return "; ".join(_planned(model) for model in section.models)


def intent(section: Buckets) -> Iterator[str]:
    """Yield the parts to be enforced."""
    for model in section.models:
        yield f"DistributedDataParallel: {_planned(model)}"


def _planned(model: Model) -> str:
    what = counted(len(model.gradients), "gradient")
    if not model.limits:
        return f"{what} in unchanged buckets"
    return f"{what} in {counted(len(model.planned), 'bucket')} of {_sizes(model.planned)}"


def sentences(outcome: BucketsOutcome) -> Iterator[str]:
    """Yield sentences on the outcome of the section."""
    for one in outcome.ranks:
        if not one.buckets:
            yield (
                f"rank {one.rank}: {counted(one.gradients, 'gradient')}; the rank ended before its "
                "buckets were known"
            )
            continue
        held = f"{counted(one.gradients, 'gradient')} in {counted(len(one.buckets), 'bucket')}"
        how = "as planned" if one.as_planned else "not as planned"
        yield f"rank {one.rank}: {held} of {_sizes(one.buckets)}, {how}"
    yield from outcome.left


def shown(section: Buckets) -> View:
    rows = [
        (
            counted(len(model.gradients), "gradient"),
            what,
            str(len(buckets)),
            _sizes(buckets),
            f"{seconds * 1e3:.1f}",
            f"{model.seconds / seconds:.2f}" if seconds else "",
        )
        for model in section.models
        for what, buckets, seconds in (
            ("without plan", model.before, model.seconds),
            *([("planned", model.planned, model.predicted)] if model.limits else []),
        )
    ]
    heads = ("model", "", ">buckets", "bucket sizes", ">step ms", ">speed-up")
    table = Table("predicted step of a rank, by buckets", columns(*heads), rows)
    return View([Section("buckets", "Gradient buckets", [table])], [_headline(section)])


def _headline(section: Buckets) -> Headline:
    best = max(section.models, key=lambda model: model.seconds / model.predicted)
    if not best.limits:
        return Headline(1, "The buckets are unchanged: no others are predicted to be faster.")
    return Headline(
        1,
        f"With the gradients in {counted(len(best.planned), 'bucket')}, a step is predicted to be "
        f"{best.seconds / best.predicted:.2f}x as fast.",
    )


def _sizes(buckets: Sequence[int]) -> str:
    return ", ".join(map(size, buckets))
