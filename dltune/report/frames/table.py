"""The tables of a document.

Repeated values in a document form a table, named by the path to them, such as "ops.times.counts".
Its rows begin with their position: for each list on the path the index in it, in a column with the
list's name, and the fields that identify the entry.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec.inspect as ms

from dltune.base.errors import UsageError
from dltune.gate.history import Entry
from dltune.report.frames.columns import (
    Column,
    Leaf,
    element,
    is_structure,
    kind_of,
    leaves,
)
from dltune.schemas.profile import OpTime

Row = tuple[Any, ...]
# rows up to an entry, and the entry
Entries = Callable[[], Iterator[tuple[Row, Any]]]
# the table of the values in no list: one row
DOCUMENT = "document"
# the path to data that is not the document's subject: steps of a profiled job's other tasks
_BESIDE = "peers."
# the fields that identify an entry, if it is not its first field
_KNOWN_BY: Mapping[type, tuple[str, ...]] = {
    OpTime: ("threads", "placement"),
    Entry: ("created", "head"),
}


@dataclass(frozen=True)
class Table:
    """A table. Calling `rows` begins at the first row; a row has a cell for each column."""

    path: str
    columns: tuple[Column, ...]
    rows: Callable[[], Iterator[Row]]


def tables(document: object) -> dict[str, Table]:
    """Return all tables by their paths, also tables without rows; "document" has one row, with all
    values that are not in a list."""
    found = leaves(ms.type_info(type(document)), document)
    walked = _walk(DOCUMENT, (), tuple(found), lambda: iter([((), document)]), ())
    return {table.path: table for table in walked}


def named(found: Mapping[str, Table], name: str) -> Table:
    """Return the table whose path is, or ends in, `name`. Raises UsageError, which lists the names
    that there are, when no table or several tables match."""
    fitting = ending(found, name)
    if len(fitting) == 1:
        return fitting[0]
    wrong = f"several tables end in {name!r}" if fitting else f"there is no table {name!r}"
    raise UsageError(wrong, remedy=f"name one of: {', '.join(names(found))}")


def ending(found: Mapping[str, Table], name: str) -> list[Table]:
    """Return the table whose path is `name`; else all tables whose paths end in it. Tables of the
    document's subject, if any match, exclude other tables."""
    if name in found:
        return [found[name]]
    ending = {path: table for path, table in found.items() if path.endswith(f".{name}")}
    own = [table for path, table in ending.items() if not path.startswith(_BESIDE)]
    return own or list(ending.values())


def names(paths: Iterable[str]) -> list[str]:
    """Return for each path its shortest unique end; the whole path for data that is not the
    document's subject."""
    every = list(paths)
    ends = {path: list(_ends(path)) for path in every if not path.startswith(_BESIDE)}
    shared = [end for several in ends.values() for end in several]
    return [next((e for e in ends.get(path, ()) if shared.count(e) == 1), path) for path in every]


def _ends(path: str) -> Iterator[str]:
    parts = path.split(".")
    return (".".join(parts[at:]) for at in reversed(range(len(parts))))


def _walk(
    path: str,
    before: tuple[Column, ...],
    fields: tuple[Leaf, ...],
    entries: Entries,
    known_by: tuple[str, ...],
) -> Iterator[Table]:
    cells = [leaf for leaf in fields if leaf.column]
    own = tuple(leaf.column for leaf in cells if leaf.column)

    def rows() -> Iterator[Row]:
        return ((*at, *(leaf.cell(entry) for leaf in cells)) for at, entry in entries())

    if before or own:
        yield Table(path, (*before, *own), rows)
    known = [leaf for leaf in cells if ".".join(leaf.path) in known_by]
    name = path.rpartition(".")[2]
    parents = (
        *before,
        *(Column(f"{name}.{c.name}", c.kind, c.optional) for leaf in known if (c := leaf.column)),
    )
    for leaf in fields:
        if not leaf.column:
            there = ".".join(leaf.path if path == DOCUMENT else (path, *leaf.path))
            yield from _listed(there, parents, leaf, _below(entries, known, leaf))


def _listed(
    path: str, parents: tuple[Column, ...], leaf: Leaf, entries: Entries
) -> Iterator[Table]:
    position = Column(leaf.path[-1], "str" if isinstance(leaf.type, ms.DictType) else "int")
    before = (*parents, position)
    item = element(leaf.type)
    assert item is not None
    if is_structure(item):
        fields = tuple(leaves(item))
        yield from _walk(path, before, fields, entries, _identity(item.cls, fields))
    else:
        kind = kind_of(item)
        assert kind
        columns = (*before, Column("value", kind))
        yield Table(path, columns, lambda: ((*at, value) for at, value in entries()))


def _below(entries: Entries, known: list[Leaf], leaf: Leaf) -> Entries:
    def found() -> Iterator[tuple[Row, Any]]:
        for at, entry in entries():
            above = (*at, *(one.cell(entry) for one in known))
            for position, value in _positions(leaf.value(entry)):
                yield (*above, position), value

    return found


def _positions(found: tuple[Any, ...] | dict[str, Any] | None) -> Iterator[tuple[int | str, Any]]:
    if not isinstance(found, dict):
        return enumerate(found or ())
    return itertools.chain.from_iterable(
        ((key, one) for one in (value if isinstance(value, tuple) else (value,)))
        for key, value in found.items()
    )


def _identity(of: type, fields: tuple[Leaf, ...]) -> tuple[str, ...]:
    first = fields[0].column
    by_first = (first.name,) if first and first.kind in ("int", "str") else ()
    return _KNOWN_BY.get(of, by_first)
