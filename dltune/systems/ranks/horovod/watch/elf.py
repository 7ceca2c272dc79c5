"""Addresses of functions in a shared library: its symbol tables and its segments (ELF, 64 bits)."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LOAD, _SYMTAB, _DYNSYM, _FUNC = 1, 2, 11, 2


@dataclass(frozen=True)
class Symbol:
    """A function: `start` and `end` as linked."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Image:
    """`segments`: (offset in the file, address as linked) of the loaded parts. `local`: functions
    of the full symbol table, which strip(1) takes away; `exported`: those that others can call."""

    segments: tuple[tuple[int, int], ...]
    local: tuple[Symbol, ...]
    exported: tuple[Symbol, ...]


def read(path: str) -> Image:
    """Raises OSError when the file cannot be read. A file of another kind has no functions."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:6] != _MAGIC:
            return Image((), (), ())
        _, _, _, _, _, segments, sections, _, _, each, count, size, number, _ = _HEADER.unpack_from(
            data
        )
        loaded = [_SEGMENT.unpack_from(data, segments + each * i) for i in range(count)]
        tables = [_SECTION.unpack_from(data, sections + size * i) for i in range(number)]
        return Image(
            tuple((part[2], part[3]) for part in loaded if part[0] == _LOAD),
            tuple(_functions(data, tables, _SYMTAB)),
            tuple(_functions(data, tables, _DYNSYM)),
        )


def _functions(data: mmap.mmap, tables: list[tuple[int, ...]], kind: int) -> Iterator[Symbol]:
    for _, type_, _, _, offset, size, link, *_ in tables:
        if type_ != kind:
            continue
        strings = tables[link][4]
        for name, info, _, section, value, length in _SYMBOL.iter_unpack(
            data[offset : offset + size]
        ):
            if info & 0xF == _FUNC and section and length:
                start = strings + name
                text = data[start : data.find(b"\0", start)].decode(errors="replace")
                yield Symbol(text, value, value + length)
