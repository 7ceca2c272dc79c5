"""A list on the command line: its parts between commas."""

from __future__ import annotations


def parts(text: str) -> list[str]:
    """Without the blanks around them, and without those that are empty."""
    return [part for part in map(str.strip, text.split(",")) if part]
