"""A candidate: the set of choices that a job is started under, in the order of their settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dltune.schemas.settings import Choice, Kind

Candidate = tuple[Choice, ...]
AS_GIVEN: Candidate = ()
KINDS: tuple[Kind, ...] = ("exact", "rounding", "lossy")


@dataclass(frozen=True)
class Option:
    """A choice that can be tried. `joins`: names of settings with which it interacts. `acts`: it
    acts on something in the job; where that is not there, its other values have no effect either.
    `framework`: whose jobs it is for (None: any).
    """

    choice: Choice
    kind: Kind
    joins: frozenset[str] = frozenset()
    acts: bool = False
    framework: str | None = None


def beside(candidate: Candidate, *choices: Choice) -> Candidate:
    """The candidate with these choices; a setting that it had keeps only its new value."""
    names = {choice.setting for choice in choices}
    return tuple(sorted([*(c for c in candidate if c.setting not in names), *choices]))


def without(candidate: Candidate, setting: str) -> Candidate:
    """The candidate with that setting left as the job has it."""
    return tuple(choice for choice in candidate if choice.setting != setting)


def furthest(kinds: Iterable[Kind]) -> Kind:
    """The kind that goes furthest from the job's own results; exact when there is none."""
    return max(kinds, key=KINDS.index, default="exact")


def added(candidate: Candidate, against: Candidate) -> Candidate:
    """The choices that `against` does not have."""
    return tuple(choice for choice in candidate if choice not in against)
