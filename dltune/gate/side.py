"""One of the two that are compared: a command, where it runs, and how to speak of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dltune.errors import UsageError
from dltune.visible import visible

LAST_LINES = 15
LAST_BYTES = 1 << 16


@dataclass(frozen=True)
class Side:
    """`name` is "base" or "head"; `title` is for a person, as in "base (main, 1a2b3c4)"."""

    name: str
    title: str
    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def temporary(self) -> str | None:
        """Where its temporary files go, which are removed with its checkout; None: the usual."""
        return self.environment.get("TMPDIR")


def last_lines(log: Path) -> str:
    """The end of what a command wrote, harmless to a terminal; empty when there is nothing.

    Behind a bar, and with "##[" broken: a CI runner obeys lines that begin with "::", even
    indented, and some that hold "##[".
    """
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - LAST_BYTES))
        lines = file.read().decode(errors="replace").splitlines()[-LAST_LINES:]
    return "\n".join(f"  | {visible(line, 400).replace('##[', '## [')}" for line in lines)


def blame(side: Side, what: str, last: str = "", *, remedy: str | None = None) -> UsageError:
    """The error of one side; `last` are the last lines that its command wrote."""
    wrote = f"; its last lines:\n{last}" if last else ""
    return UsageError(f"in {side.title}: {what}{wrote}", remedy=remedy)
