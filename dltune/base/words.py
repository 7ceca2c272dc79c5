"""Figures and names of files in the words of sentences and tables."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path


def between_commas(text: str) -> list[str]:
    """The parts of a list, without the blanks around them, and without those that are empty."""
    return [part for part in map(str.strip, text.split(",")) if part]


def some(names: Sequence[str], most: int) -> str:
    """The first `most` of a list, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def size(value: float | None) -> str:
    """Bytes: "812 B", "64 KiB", "1.5 GiB"; "?" for an unknown size."""
    if value is None:
        return "?"
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if value >= 1 << shift:
            scaled = value / (1 << shift)
            return f"{scaled:.0f} {unit}" if scaled >= 10 else f"{scaled:.1f} {unit}"
    return f"{value:.0f} B"


def rate(value: float | None) -> str:
    """Bytes a second."""
    return "?" if value is None else f"{size(value)}/s"


def share(value: float | None) -> str:
    """A share as a percentage; small ones with a decimal."""
    if value is None:
        return "?"
    return f"{value:.0%}" if value >= 0.1 or value == 0 else f"{value:.1%}"


def count(value: float | None) -> str:
    """A number of things, in groups of three digits."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def counted(number: int, noun: str) -> str:
    """Return "1 bin" for 1 and "2 bins" for 2."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def milliseconds(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds * 1e3:.3g} ms"


def signal_name(number: int) -> str:
    """Return "SIGKILL" for 9, and "signal 40" for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def file_name(path: str) -> str:
    """The last part of a path, with its folder when it is a common name."""
    whole = Path(path)
    return f"{whole.parent.name}/{whole.name}" if whole.name == "data.mdb" else whole.name
