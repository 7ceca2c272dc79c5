"""The last that a job wrote, where its output was kept aside."""

from __future__ import annotations

from pathlib import Path

LINES = 15
# of the log that are looked at
_BYTES = 1 << 16


def last_lines(log: Path) -> list[str]:
    """The last that a job wrote."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - _BYTES))
        return file.read().decode(errors="replace").splitlines()[-LINES:]


def last_words(log: Path, job: str = "the job") -> str:
    """The same for a person; empty when it wrote nothing."""
    lines = last_lines(log)
    return "\n  ".join([f"the last lines of {job}:", *lines]) if lines else ""
