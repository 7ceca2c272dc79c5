"""The tables of a document, whose columns follow from the types of its fields.

Each new field of a document becomes a column. A struct within a struct is flattened, its fields'
names joined by dots. Repeated values (structs, times and other measured numbers, entries of a
dictionary) get a separate table, named by the path to them, such as "ops.times.counts".

The rows of such a table begin with their position: for each list on the path the index in it, in a
column with the list's name, and the fields that identify the entry.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

import msgspec.inspect as ms

from dltune.base.errors import UsageError
from dltune.gate.verdicts import Entry
from dltune.schemas.profile import OpTime

# The columns of a struct

Kind = Literal["int", "float", "bool", "str", "tuple"]
Structure = ms.StructType | ms.DataclassType
_KINDS: dict[type[ms.Type], Kind] = {
    ms.IntType: "int",
    ms.FloatType: "float",
    ms.BoolType: "bool",
    ms.StrType: "str",
    ms.LiteralType: "str",
    ms.VarTupleType: "tuple",
    ms.TupleType: "tuple",
}


@dataclass(frozen=True)
class Column:
    """A column. `kind`: the type of its cells. `optional`: they can be None."""

    name: str
    kind: Kind
    optional: bool = False


@dataclass(frozen=True)
class Leaf:
    """A field that is not flattened any further. `path`: from the struct passed to `leaves`."""

    path: tuple[str, ...]
    type: ms.Type
    optional: bool

    @functools.cached_property
    def column(self) -> Column | None:
        """The field's column; None for a field that gets a separate table."""
        kind = kind_of(self.type)
        return Column(".".join(self.path), kind, self.optional) if kind else None

    def value(self, of: object) -> Any:
        """Return the field's value in this struct; None also if a struct on the path is None."""
        for name in self.path:
            if of is None:
                return None
            of = of[name] if isinstance(of, dict) else getattr(of, name)
        return of

    def cell(self, of: object) -> Any:
        value = self.value(of)
        if value is None or isinstance(value, str) or not self.column or self.column.kind != "str":
            return value
        return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def leaves(
    of: ms.Type, example: object = None, path: tuple[str, ...] = (), optional: bool = False
) -> Iterator[Leaf]:
    """Yield the leaves in the order of the fields. `example`: a struct of this type, which supplies
    the types in a dictionary of different structs. `path`: the position of such a struct,
    `optional`: it can be None."""
    assert is_structure(of)
    for field in of.fields:
        here = (*path, field.name)
        found, none = _without_none(field.type)
        value = getattr(example, field.name, None)
        if is_structure(found) and not _is_text(found):
            yield from leaves(found, value, here, optional or none)
        elif isinstance(found, ms.DictType) and not element(found):
            for name, section in (value or {}).items():
                yield from leaves(ms.type_info(type(section)), section, (*here, name))
        else:
            yield Leaf(here, found, optional or none)


def kind_of(found: ms.Type) -> Kind | None:
    """Return the kind of a cell of this type; None for a type that gets a separate table."""
    if _is_text(found):
        return "str"
    if isinstance(found, ms.VarTupleType):
        if _is_text(found.item_type):
            return "str"
        if is_structure(found.item_type) or isinstance(found.item_type, ms.FloatType):
            return None
    return None if isinstance(found, ms.DictType) else _KINDS[type(found)]


def element(found: ms.Type) -> ms.Type | None:
    """Return the type of such a table's rows; None for a dictionary of different structs."""
    if isinstance(found, ms.DictType):
        value = found.value_type
        if isinstance(value, ms.VarTupleType):
            return element(value)
        return value if type(value) in _KINDS else None
    assert isinstance(found, ms.VarTupleType)
    return found.item_type


def is_structure(found: ms.Type) -> TypeGuard[Structure]:
    return isinstance(found, ms.StructType | ms.DataclassType)


def _is_text(found: ms.Type) -> bool:
    """Return True for a struct that defines its own text form."""
    return is_structure(found) and "__str__" in vars(found.cls)


def _without_none(found: ms.Type) -> tuple[ms.Type, bool]:
    if not isinstance(found, ms.UnionType):
        return found, False
    (kept,) = (kind for kind in found.types if not isinstance(kind, ms.NoneType))
    return kept, found.includes_none


# The tables of a document

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
