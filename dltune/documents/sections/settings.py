"""The plan's section on the settings around the ops: what was chosen, and what each did.

Ratios are step times over those of the job as it was given, in the same rounds: below 1 is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from dltune.documents.faults import AMOUNT, LEVEL, at_least, each, empty, repeated

# what a setting may change in a job's results: nothing, at equal threads; the order of additions
# or the kernel, as TensorFlow's own thread setting does; the precision or the mathematics
Kind = Literal["exact", "rounding", "lossy"]
Verdict = Literal[
    "helps", "hurts", "not proven", "no difference seen", "undecided", "failed", "no effect"
]
MEASURED: frozenset[Verdict] = frozenset(("helps", "hurts", "not proven", "no difference seen"))


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, order=True):
    """A setting of the space by its name, and its value there."""

    setting: str
    value: str

    def __str__(self) -> str:
        return f"{self.setting}={self.value}"


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The median ratio of `rounds` rounds, and bounds that hold the true one with `confidence` at
    any look (None: too few rounds for one)."""

    ratio: float
    low: float | None
    high: float | None
    confidence: float
    rounds: int


class Effect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one trial came to: `choices` beside those of `beside`, over `beside` alone.

    `verdict` "not proven": the rounds lean to one side, but the interval holds 1; "failed": the job
    crashed, hung or did not start under it; "no effect": there was nothing in the job that it acts
    on; `why` says so in a sentence, and what else is to be known.
    """

    choices: tuple[Choice, ...]
    beside: tuple[Choice, ...]
    kind: Kind
    verdict: Verdict
    measured: Measured | None
    why: str


class Untried(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A setting, or one value of it, that was not tried, and why."""

    setting: str
    value: str | None
    why: str


class SettingsPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`command` is the job's that was tuned. `chosen` is what `dltune run` applies; `kind` the
    furthest that any of it goes. `whole`: the chosen set over the job as it was given, and
    `recommended`: over TensorFlow's recommendation of threads (None: not measured). `seconds` is
    the budget that was spent. `overrides`: what is chosen stands in place of what the user has set
    himself, which was found to be wrong."""

    command: tuple[str, ...]
    chosen: tuple[Choice, ...]
    kind: Kind
    whole: Measured | None
    recommended: Measured | None
    effects: tuple[Effect, ...]
    untried: tuple[Untried, ...]
    seconds: float
    partial: str | None
    overrides: bool = False


def faults(section: SettingsPlan) -> Iterator[str]:
    """All that cannot be true, one sentence each, the field's path first.

    Whether a setting exists, and has such a value here, is for those who have the space at hand.
    """
    chosen = (choice.setting for choice in section.chosen)
    yield from repeated("settings.chosen", "setting", chosen)
    for field in ("whole", "recommended"):
        if measured := getattr(section, field):
            yield from _measured_faults(f"settings.{field}", measured)
    for here, effect in each("settings.effects", section.effects):
        yield from empty(here, effect, "choices")
        if effect.measured:
            yield from _measured_faults(f"{here}.measured", effect.measured)
        elif effect.verdict in MEASURED:
            yield f"{here}.verdict must rest on what was measured, got {effect.verdict!r} without"
    yield from AMOUNT.of("settings", section, "seconds")


def _measured_faults(here: str, measured: Measured) -> Iterator[str]:
    yield from at_least(1).of(here, measured, "rounds")
    yield from AMOUNT.of(here, measured, "ratio", "low", "high")
    yield from LEVEL.of(here, measured, "confidence")
    if measured.low is not None:
        yield from at_least(measured.low, "the low end").of(here, measured, "high")
