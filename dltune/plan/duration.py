"""Lengths of time on the command line."""

from __future__ import annotations

import re

import click

_SECONDS = {"s": 1.0, "m": 60.0, "": 60.0, "h": 3600.0}
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*([smh]?)")


class Duration(click.ParamType[float]):
    """Length of time on the command line: 90s, 10m, 1h, or a number of minutes.

    The value is in seconds.
    """

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        found = _WRITTEN.fullmatch(str(value).strip())
        if not found or not float(found[1]):
            self.fail(f"{value!r} is not a duration above 0 such as 90s, 10m or 1h", param, ctx)
        return float(found[1]) * _SECONDS[found[2]]


def duration_in_words(seconds: float) -> str:
    """Return a duration for users, in the form of the command line."""
    if seconds < 120:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds % 60 < 1 else f"{seconds / 60:.1f}m"
