"""An axis: where a value lies on it, and which values are written beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, linear or (both above 0) logarithmic. `unit` is written after numbers;
    `whole`: only whole numbers are written, as for counts."""

    low: float
    high: float
    unit: str = ""
    log: bool = False
    whole: bool = False

    def at(self, value: float) -> float:
        """0 at `low`, 1 at `high`; what lies outside is drawn at the end."""
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            place = math.log10(max(value, self.low))
        else:
            low, high, place = self.low, self.high, value
        return min(1.0, max(0.0, (place - low) / (high - low))) if high > low else 0.5

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Round values with their text, `most` of them at the most."""
        values = list(self._decades(most) if self.log else self._round(most))
        return [(value, f"{_short(value)}{self.unit}") for value in values]

    def _round(self, most: int) -> Iterator[float]:
        step = round_step((self.high - self.low) / max(1, most - 1))
        if self.whole:
            step = max(1.0, step)
        count = math.ceil(self.low / step - 1e-9)
        while count * step <= self.high + 1e-9 * step:
            yield count * step
            count += 1

    def _decades(self, most: int) -> Iterator[float]:
        first = math.ceil(math.log10(self.low) - 1e-9)
        last = math.floor(math.log10(self.high) + 1e-9)
        every = max(1, math.ceil((last - first + 1) / most))
        for power in range(first, last + 1, every):
            yield 10.0**power


def round_step(least: float) -> float:
    """The least of 1, 2 or 5 times a power of ten that is not below `least`."""
    if not least > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next((f * power for f in (1.0, 2.0, 5.0) if f * power >= least * (1 - 1e-9)), 10 * power)


def up_to(values: Iterable[float]) -> float:
    """A round end for an axis from 0 that holds all values."""
    most = max(values, default=0.0)
    step = round_step(most / 4)
    return step * max(1, math.ceil(most / step - 1e-9))


def _short(value: float) -> str:
    text = f"{value:.6g}"
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):g}{letter}"
    return text
