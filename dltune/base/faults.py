"""Faults of a field, in one form: "settings.intra must be at least 1, got 0"."""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from dltune.base.errors import UsageError
from dltune.base.visible import visible

T = TypeVar("T")


@dataclass(frozen=True)
class Bound:
    """Condition on a value: `words` follow "must be", `holds` returns True if a value meets it."""

    words: str
    holds: Callable[[Any], bool]

    def faults(self, here: str, *values: object) -> list[str]:
        """A sentence for each of `values`, found at the path `here`, that is not so."""
        return [
            f"{here} must be {self.words}, got {visible(repr(value))}"
            for value in values
            if not self.holds(value)
        ]

    def of(self, here: str, struct: msgspec.Struct | None, *fields: str) -> list[str]:
        """Return `faults` of these fields of the struct at the path `here` ("": the document).
        A field that is None holds no value, nor does any field where the struct is left out."""
        found: list[str] = []
        for field in fields if struct is not None else ():
            value = getattr(struct, field)
            # paths are made for faults alone: a large profile has half a million such fields
            if value is not None and not self.holds(value):
                found += self.faults(path(here, field), value)
        return found


@functools.lru_cache
def at_least(least: float, what: str = "") -> Bound:
    """`what` the bound is, if it is more than a number."""
    return Bound(f"at least {least}{_aside(what)}", lambda value: value >= least)


@functools.lru_cache
def at_most(most: float, what: str = "") -> Bound:
    return Bound(f"at most {most}{_aside(what)}", lambda value: value <= most)


def above(bound: float) -> Bound:
    return Bound(f"above {bound}", lambda value: value > bound)


def between(low: float, high: float) -> Bound:
    """From `low` to `high`, both included."""
    return Bound(f"between {low} and {high}", lambda value: low <= value <= high)


@functools.lru_cache
def index(size: int, of: str) -> Bound:
    """The place of one of `size` things, of which `of` is the name, from 0 on."""
    words = f"at least 0 and below {size} (the number of {of})"
    return Bound(words, lambda value: 0 <= value < size)


def one_of(known: Container[Any], names: str) -> Bound:
    """Bound to the `known` values, which `names` describes: "one of the settings"."""
    return Bound(f"one of {names}", known.__contains__)


AMOUNT = Bound("finite and not negative", lambda value: 0 <= value < math.inf)
POSITIVE = Bound("finite and above 0", lambda value: 0 < value < math.inf)
SHARE = between(0, 1)
LEVEL = Bound("above 0 and below 1", lambda value: 0 < value < 1)


def each(here: str, items: Iterable[T], name: str = "") -> Iterator[tuple[str, T]]:
    """Each with its path: its place in the list `here`, and in brackets the field `name` of it."""
    for place, item in enumerate(items):
        yield f"{here}[{place}] ({getattr(item, name)})" if name else f"{here}[{place}]", item


def empty(here: str, struct: msgspec.Struct, *fields: str) -> Iterator[str]:
    """A sentence for each of these fields that holds nothing, or but spaces."""
    held = ((field, getattr(struct, field)) for field in fields)
    return (
        f"{path(here, field)} must not be empty"
        for field, value in held
        if not (value.strip() if isinstance(value, str) else value)
    )


def repeated(here: str, what: str, values: Iterable[Hashable]) -> Iterator[str]:
    """A sentence for each of `values` that is there more than once."""
    told = list(values)
    if len(set(told)) < len(told):
        for value, times in collections.Counter(told).items():
            if times > 1:
                yield (
                    f"{here} must contain each {what} only once, got {visible(repr(value))} "
                    f"{times} times"
                )


def refuse(
    source: str,
    faults: Sequence[str],
    remedy: str = "correct these fields, or create the file again",
) -> None:
    """Raise UsageError, which lists the faults, if there are any."""
    if faults:
        shown = "\n  ".join(faults[:20])
        more = f"\n  and {len(faults) - 20} more" if len(faults) > 20 else ""
        raise UsageError(
            f"{source} is invalid:\n  {shown}{more}",
            remedy=remedy,
        )


def path(here: str, field: str) -> str:
    """Path of a field of the struct at the path `here` ("": the document)."""
    return f"{here}.{field}" if here else field


def _aside(what: str) -> str:
    return f" ({what})" if what else ""
