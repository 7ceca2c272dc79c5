"""Checks of the tables of any document: what is in them, how they are called, how they are read."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from any_document import content

from dltune.base.errors import UsageError
from dltune.report import export
from dltune.report.table import DOCUMENT, Table, named, names, tables

PARSED = {"int": int, "float": float, "bool": lambda text: text == "True", "str": str,
          "tuple": lambda text: _tuples(json.loads(text))}  # fmt: skip


def own(table: Table) -> slice:
    """The columns that do not tell where a row stands; an entry's key in a dictionary does not."""
    if table.path == DOCUMENT:
        return slice(None)
    at = [column.name for column in table.columns].index(table.path.rpartition(".")[2])
    return slice(at if table.columns[at].kind == "str" else at + 1, None)


def require_all_content_once(document: Any) -> None:
    told: Counter[Any] = Counter()
    for table in tables(document).values():
        for row in table.rows():
            assert len(row) == len(table.columns)
            told.update(map(repr, content(tuple(row[own(table)]))))
    assert told == Counter(map(repr, content(document)))


def require_typed_columns(document: Any) -> None:
    for table in tables(document).values():
        assert len({column.name for column in table.columns}) == len(table.columns)
        for row in table.rows():
            for cell, column in zip(row, table.columns, strict=True):
                assert type(cell).__name__ == column.kind or (cell is None and column.optional)


def require_names(document: Any) -> None:
    found = tables(document)
    told = names(found)
    assert len(set(told)) == len(found)
    for name, path in zip(told, found, strict=True):
        assert named(found, name).path == named(found, path).path == path


def require_readable(path: Path) -> None:
    """Every table of a file, as a frame and as CSV."""
    assert rows(export.table(path)), path
    with pytest.raises(UsageError) as none:
        export.table(path, "nothing")
    told = str(none.value.remedy).removeprefix("name one of: ").split(", ")
    for name in told:
        table = export.table(path, name)
        assert from_csv(table) == from_frame(table) == rows(table)


def from_csv(table: Table) -> list[tuple[Any, ...]]:
    """The cells as CSV has them, None where they are empty."""
    file = io.StringIO(newline="")
    export.write(table, file)
    head, *lines = csv.reader(io.StringIO(file.getvalue(), newline=""))
    assert head == [column.name for column in table.columns]
    kinds = [column.kind for column in table.columns]
    return [
        tuple(PARSED[kind](text) if text else None for text, kind in zip(line, kinds, strict=True))
        for line in lines
    ]


def from_frame(table: Table) -> list[tuple[Any, ...]]:
    import pandas

    found = export.frame(table)
    assert list(found.columns) == [column.name for column in table.columns]
    return [
        tuple(None if not isinstance(c, tuple) and (pandas.isna(c) or c == "") else c for c in row)
        for row in found.itertuples(index=False, name=None)
    ]


def rows(table: Table) -> list[tuple[Any, ...]]:
    return [tuple(None if cell == "" else cell for cell in row) for row in table.rows()]


def _tuples(found: Any) -> Any:
    return tuple(map(_tuples, found)) if isinstance(found, list) else found
