"""The plan's section on settings outside the ops: the chosen settings, and the effect of each.

Ratios are step times divided by those of the unchanged job in the same rounds. Below 1 is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from dltune.base.documents import AMOUNT, FILLED, LEVEL, at_least, repeated

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

    ratio: Annotated[float, AMOUNT]
    low: Annotated[float | None, AMOUNT]
    high: Annotated[float | None, AMOUNT]
    confidence: Annotated[float, LEVEL]
    rounds: Annotated[int, at_least(1)]

    def relation_faults(self) -> Iterator[str]:
        if self.low is not None:
            yield from at_least(self.low, "the low end").of("", self, "high")


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

    choices: Annotated[tuple[Choice, ...], FILLED]
    beside: tuple[Choice, ...]
    kind: Kind
    verdict: Verdict
    measured: Measured | None
    why: str

    def relation_faults(self) -> Iterator[str]:
        if self.verdict in MEASURED and self.measured is None:
            yield f"verdict {self.verdict!r} needs a measurement, but measured is null"


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
    seconds: Annotated[float, AMOUNT]
    partial: str | None
    overrides: bool = False

    def relation_faults(self) -> Iterator[str]:
        # whether a setting exists, and has such a value here, is for those who have the space
        yield from repeated("chosen", "setting", (choice.setting for choice in self.chosen))
