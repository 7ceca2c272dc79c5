"""Documents with any content: of the right types, and seldom such as could be true."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec.inspect as ms
from hypothesis import strategies as st

from dltune.schemas.settings import Choice

CHARACTERS = "ab,;\"'\r\n\t =@\\é𝄞\u202e"


def documents(kind: type) -> st.SearchStrategy[Any]:
    """Each made from one number: hypothesis is slow at so many choices."""
    return st.integers(0, 2**32).map(lambda seed: _made(ms.type_info(kind), random.Random(seed)))


def _made(kind: ms.Type, draw: random.Random) -> Any:
    def several() -> range:
        return range(draw.randrange(3))

    match kind:
        case ms.StructType() | ms.DataclassType():
            return kind.cls(**{field.name: _made(field.type, draw) for field in kind.fields})
        case ms.UnionType():
            return _made(draw.choice(kind.types), draw)
        case ms.VarTupleType():
            return tuple(_made(kind.item_type, draw) for _ in several())
        case ms.TupleType():
            return tuple(_made(item, draw) for item in kind.item_types)
        case ms.DictType():
            return {_text(draw): _made(kind.value_type, draw) for _ in several()}
        case ms.LiteralType():
            return draw.choice(kind.values)
        case ms.IntType():
            return draw.choice((0, 1, -1, draw.randrange(-(2**63), 2**63)))
        case ms.FloatType():
            return draw.choice((0.0, 0.1, 5e-324, -1e300, draw.random()))
        case ms.BoolType():
            return draw.random() < 0.5
        case ms.StrType():
            return _text(draw)
        case ms.NoneType():
            return None
    raise AssertionError(kind)


def _text(draw: random.Random) -> str:
    return "".join(draw.choices(CHARACTERS, k=draw.randrange(5)))


def content(found: Any) -> Iterator[Any]:
    """All values in a document or a cell, one by one, keys of dictionaries with each of their
    values. Choices are text."""
    if isinstance(found, dict):
        for key, value in found.items():
            for one in value if isinstance(value, tuple) else (value,):
                yield from content(key)
                yield from content(one)
    elif isinstance(found, tuple) and found and isinstance(found[0], Choice):
        yield ", ".join(map(str, found))
    elif isinstance(found, tuple):
        for one in found:
            yield from content(one)
    elif hasattr(found, "__struct_fields__") or hasattr(found, "__dataclass_fields__"):
        names = getattr(found, "__struct_fields__", None) or found.__dataclass_fields__
        for name in names:
            yield from content(getattr(found, name))
    elif found is not None and found != "":
        yield found
