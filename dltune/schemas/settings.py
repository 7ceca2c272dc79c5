"""The plan's section on settings outside the ops: the chosen settings, and the effect of each.

Ratios are step times divided by those of the unchanged job in the same rounds. Below 1 is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from dltune.base.documents import AMOUNT, LEVEL, at_least, each, empty, repeated

# what a setting may change in a job's results: nothing, at equal threads; the order of additions
# or the kernel, as TensorFlow's own thread setting does; the precision or the mathematics
Kind = Literal["exact", "rounding", "lossy"]
Verdict = Literal[
    "helps", "hurts", "not proven", "no difference seen", "undecided", "failed", "no effect"
]
MEASURED: frozenset[Verdict] = frozenset(("helps", "hurts", "not proven", "no difference seen"))


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, order=True):
    """A setting and its value.

    `setting`: name of the setting.
    `value`: value of the setting.
    """

    setting: str
    value: str

    def __str__(self) -> str:
        return f"{self.setting}={self.value}"


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A measured ratio.

    `ratio`: median ratio.
    `low`, `high`: confidence interval of the true ratio, valid at any time of the search; null if
      there is no bound yet.
    `confidence`: confidence level of the interval.
    `rounds`: number of rounds.
    """

    ratio: float
    low: float | None
    high: float | None
    confidence: float
    rounds: int


class Effect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a trial.

    `choices`: settings that were tried.
    `beside`: settings that were in force in both runs.
    `kind`: `exact`: identical results; `rounding`: results differ by rounding; `lossy`: precision
      or mathematics changes.
    `verdict`: `helps`; `hurts`; `not proven`: the interval contains 1; `no difference seen`;
      `undecided`; `failed`: the job crashed, hung or did not start; `no effect`: the setting found
      nothing to act on.
    `measured`: measured ratio; null without one.
    `why`: explanation.
    """

    choices: tuple[Choice, ...]
    beside: tuple[Choice, ...]
    kind: Kind
    verdict: Verdict
    measured: Measured | None
    why: str


class Untried(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A setting that was not tried.

    `setting`: name of the setting.
    `value`: value that was not tried; null for all values.
    `why`: reason.
    """

    setting: str
    value: str | None
    why: str


class SettingsPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings outside the ops.

    `command`: command of the tuned job.
    `chosen`: settings that `dltune run` applies.
    `kind`: strongest effect on results of all chosen settings: `exact`, `rounding` or `lossy`.
    `whole`: all chosen settings compared with the unchanged job, in fresh rounds; null if not
      measured.
    `recommended`: all chosen settings compared with the framework's recommended threads; null if
      not measured.
    `effects`: results of the trials.
    `untried`: settings that were not tried.
    `seconds`: part of the budget that was used.
    `partial`: reason why the search ended early; null if it is complete.
    `overrides`: true if chosen settings replace the user's own settings, as in plans of `dltune
      diagnose --plan`.
    """

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
            yield f"{here}.verdict {effect.verdict!r} needs a measurement, but measured is null"
    yield from AMOUNT.of("settings", section, "seconds")


def _measured_faults(here: str, measured: Measured) -> Iterator[str]:
    yield from at_least(1).of(here, measured, "rounds")
    yield from AMOUNT.of(here, measured, "ratio", "low", "high")
    yield from LEVEL.of(here, measured, "confidence")
    if measured.low is not None:
        yield from at_least(measured.low, "the low end").of(here, measured, "high")
