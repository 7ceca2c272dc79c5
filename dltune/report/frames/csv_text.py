"""A table as CSV (RFC 4180, but lines end with a line feed alone)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Any, TextIO

import msgspec

from dltune.report.frames.table import Table


def write(table: Table, file: TextIO) -> None:
    """A head of the columns' names, and the rows. None is an empty cell, several values in a cell
    are a JSON array, and numbers are written so that none of their digits is lost."""
    writer = csv.writer(_Lines(file))
    writer.writerow(column.name for column in table.columns)
    writer.writerows(map(_cell, row) for row in table.rows())


@dataclass(frozen=True)
class _Lines:
    """The writer quotes a carriage return in a cell only if its own lines end with one."""

    file: TextIO

    def write(self, line: str) -> int:
        return self.file.write(line.removesuffix("\r\n") + "\n")


def _cell(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, tuple) else value
