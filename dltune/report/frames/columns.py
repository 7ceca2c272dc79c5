"""The columns of a struct, from the types of its fields: each new document field becomes a column.

A struct within a struct is flattened, its fields' names joined by dots. Repeated values
(structs, times and other measured numbers, entries of a dictionary) get a separate table.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

import msgspec.inspect as ms

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
