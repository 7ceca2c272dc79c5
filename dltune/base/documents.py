"""Documents: read a whole document and check it, write a document atomically, describe faults.

A document is JSON with a `schema` field ("dltune.profile/1": kind and version) first, gzipped when
its name ends in `.gz`. Reading reports every fault with its path; nothing is used before all is
checked. Writing goes through a file next to the target, so a reader never sees half a document.

Every fault has the same form: "settings.intra must be at least 1, got 0". A `Bound` makes such
sentences; fields of structs declare their bounds, and `struct_faults` checks a whole document.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import functools
import gzip
import hashlib
import math
import os
import re
import secrets
import types
import typing
import zlib
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from dltune.base.errors import UsageError
from dltune.base.formatting import visible

T = TypeVar("T")

# Faults of fields


@dataclass(frozen=True)
class Bound:
    """Condition on a value: `words` describe it, `holds` returns True if a value meets it."""

    words: str
    holds: Callable[[Any], bool]
    sentence: str = " must be {words}, got {value}"

    def fault(self, value: object) -> str:
        """Return the sentence for a value that is not so, without the path that it begins with."""
        return self.sentence.format(words=self.words, value=visible(repr(value)))

    def faults(self, here: str, *values: object) -> list[str]:
        """A sentence for each of `values`, found at the path `here`, that is not so."""
        return [f"{here}{self.fault(value)}" for value in values if not self.holds(value)]

    def of(self, here: str, struct: msgspec.Struct | None, *fields: str) -> list[str]:
        """Return `faults` of these fields of the struct at the path `here` ("": the document).
        A field that is None holds no value, nor does any field where the struct is left out."""
        found: list[str] = []
        for field in fields if struct is not None else ():
            value = getattr(struct, field)
            # paths are made for faults alone: a large profile has half a million such fields
            if value is not None and not self.holds(value):
                found += self.faults(field_path(here, field), value)
        return found


@functools.lru_cache
def at_least(least: float, what: str = "") -> Bound:
    """Return the bound of a field that must be at least this. `what`: what the number is."""
    return Bound(f"at least {least}{_aside(what)}", lambda value: value >= least)


@functools.lru_cache
def at_most(most: float, what: str = "") -> Bound:
    """Return the bound of a field that must be at most this. `what`: what the number is."""
    return Bound(f"at most {most}{_aside(what)}", lambda value: value <= most)


def above(bound: float) -> Bound:
    """Return the bound of a field that must be above this."""
    return Bound(f"above {bound}", lambda value: value > bound)


def between(low: float, high: float) -> Bound:
    """Return the bound of a field that must be from `low` to `high`, both included."""
    return Bound(f"between {low} and {high}", lambda value: low <= value <= high)


@functools.lru_cache
def index(size: int, of: str) -> Bound:
    """The place of one of `size` things, of which `of` is the name, from 0 on."""
    words = f"at least 0 and below {size} (the number of {of})"
    return Bound(words, lambda value: 0 <= value < size)


def one_of(known: Container[Any], names: str) -> Bound:
    """Bound to the `known` values, which `names` describes: "one of the settings"."""
    return Bound(f"one of {names}", known.__contains__)


AMOUNT = Bound("finite and not negative", lambda value: 0 <= value < math.inf)
POSITIVE = Bound("finite and above 0", lambda value: 0 < value < math.inf)
SHARE = between(0, 1)
LEVEL = Bound("above 0 and below 1", lambda value: 0 < value < 1)
FILLED = Bound(
    "", lambda value: bool(value.strip() if isinstance(value, str) else value), " must not be empty"
)
# marks the field of a struct that paths show after its place in a list: "ops[3] (MatMul)"
LABEL: Final = object()


def each(here: str, items: Iterable[T]) -> Iterator[tuple[str, T]]:
    """Each with its path: its place in the list `here`, and its label in brackets if it has one."""
    for place, item in enumerate(items):
        yield f"{here}{_place(place, item)}", item


def _place(place: int, item: Any) -> str:
    label = _label(item.__class__)
    return f"[{place}] ({getattr(item, label)})" if label else f"[{place}]"


@functools.cache
def _label(kind: type) -> str:
    if not issubclass(kind, msgspec.Struct):
        return ""
    hints = typing.get_type_hints(kind, include_extras=True)
    return next((field for field, hint in hints.items() if LABEL in _marks(hint)), "")


def struct_faults(here: str, struct: msgspec.Struct) -> list[str]:
    """Return a sentence for each fault of the struct at the path `here` ("": the document), and of
    the structs that it contains.

    A field declares its bounds in its annotation: `seconds: Annotated[float, AMOUNT]`. None is
    within all bounds. A struct declares what relates its fields in a method `relation_faults`,
    which yields sentences that begin with the path from this struct on.
    """
    return [f"{here}{fault}" if here else fault[1:] for fault in _struct_faults(struct)]


_Check = Callable[[Any], list[str]]  # the faults of a value: what follows its path


def _struct_faults(struct: Any) -> list[str]:
    # paths are made for faults alone: a large profile has half a million such fields
    faults: list[str] = []
    checked, relations = _checks(struct.__class__)
    for field, bounds, inner in checked:
        value = getattr(struct, field)
        if value is None:
            continue
        for bound in bounds:
            if not bound.holds(value):
                faults.append(f".{field}{bound.fault(value)}")
        if inner is not None and (found := inner(value)):
            faults += [f".{field}{fault}" for fault in found]
    if relations:
        for fault in struct.relation_faults():
            faults.append(f".{fault}")
    return faults


def _item_faults(bounds: tuple[Bound, ...], inner: _Check | None, items: Any) -> list[str]:
    faults: list[str] = []
    named = isinstance(items, dict)
    for place, item in items.items() if named else enumerate(items):
        found = inner(item) if inner is not None else []
        for bound in bounds:
            if not bound.holds(item):
                found = [bound.fault(item), *found]
        if found:
            at = f".{place}" if named else _place(place, item)
            faults += [f"{at}{fault}" for fault in found]
    return faults


@functools.cache
def _checks(
    kind: type[msgspec.Struct],
) -> tuple[list[tuple[str, tuple[Bound, ...], _Check | None]], bool]:
    """The fields of a struct that have bounds or content to check, and whether it has relations."""
    hints = typing.get_type_hints(kind, include_extras=True)
    checks = [(field, *_compiled(hints[field])) for field in kind.__struct_fields__]
    checked = [(field, bounds, inner) for field, bounds, inner in checks if bounds or inner]
    return checked, hasattr(kind, "relation_faults")


def _compiled(hint: Any) -> tuple[tuple[Bound, ...], _Check | None]:
    """The bounds of a type's values, and the check of what they contain."""
    bounds = tuple(mark for mark in _marks(hint) if isinstance(mark, Bound))
    plain = typing.get_args(hint)[0] if _marks(hint) else hint
    union = typing.get_origin(plain) in (typing.Union, types.UnionType)
    for kind in typing.get_args(plain) if union else (plain,):
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return bounds, _struct_faults
        if origin is dict or (origin is tuple and arguments[-1] is Ellipsis):
            item = _compiled(arguments[origin is dict])
            return bounds, functools.partial(_item_faults, *item) if any(item) else None
    return bounds, None


def _marks(hint: Any) -> tuple[Any, ...]:
    return getattr(hint, "__metadata__", ())


def repeated(here: str, what: str, values: Iterable[Hashable]) -> Iterator[str]:
    """A sentence for each of `values` that is there more than once."""
    told = list(values)
    if len(set(told)) < len(told):
        for value, times in collections.Counter(told).items():
            if times > 1:
                yield (
                    f"{here} must contain each {what} only once, got {visible(repr(value))} "
                    f"{times} times"
                )


def refuse(
    source: str,
    faults: Sequence[str],
    remedy: str = "correct these fields, or create the file again",
) -> None:
    """Raise UsageError, which lists the faults, if there are any."""
    if faults:
        shown = "\n  ".join(faults[:20])
        more = f"\n  and {len(faults) - 20} more" if len(faults) > 20 else ""
        raise UsageError(
            f"{source} is invalid:\n  {shown}{more}",
            remedy=remedy,
        )


def field_path(here: str, field: str) -> str:
    """Path of a field of the struct at the path `here` ("": the document)."""
    return f"{here}.{field}" if here else field


def _aside(what: str) -> str:
    return f" ({what})" if what else ""


# Reading a document, its digest and its encoding

DocumentT = TypeVar("DocumentT", bound=msgspec.Struct)
# what decoding raises: the second where lists within lists are too deep
NOT_JSON: Final = (msgspec.DecodeError, RecursionError)


# bytes, also of a compressed file's content
LONGEST = 1 << 30
_GZIP, _PART = b"\x1f\x8b", 1 << 24
# a decoder's sentence, and a plainer one
_PLAIN: Final = {
    r"^Object contains unknown field": "unknown field",
    r"^Object missing required field (.*)": r"the field \1 is missing",
    r"^Expected (.*), got (.*)": r"must be \1, got \2",
    r"^Invalid enum value": "unknown value",
    r"^Input data was truncated": "the JSON data is truncated",
}
_REMEDY = "name another file, or create it again with dltune"
_OUTPUT = "choose another output path, or check its permissions and the free space"


class _Header(msgspec.Struct):
    schema: str


def read(path: Path, kind: type[DocumentT], schema: str) -> DocumentT:
    """Return the document at `path`, decoded as `kind` and without faults.

    Raises UsageError when the file cannot be read, is another kind of file, is of another schema,
    or has faults (`struct_faults`); the message lists them all.
    """
    return decode(content(path), kind, schema, str(path))


def reader(kind: type[DocumentT], schema: str) -> Callable[[Path], DocumentT]:
    """Return the function that reads a file of this kind as `read` does."""

    def load(path: Path) -> DocumentT:
        """The document in a file. Raises UsageError, which lists every fault."""
        return read(path, kind, schema)

    return load


def decode(data: bytes, kind: type[DocumentT], schema: str, source: str) -> DocumentT:
    """Return the document as `read` does, from bytes; `source` names the file in messages."""
    name, _, version = schema.rpartition("/")
    found = _schema(data, f"a {name} file", source)
    found_name, _, found_version = found.rpartition("/")
    if found_name != name:
        raise UsageError(
            f"{source} is a {found_name or found} file, but a {name} file is needed",
            remedy=f"name a {name} file",
        )
    if found_version != version:
        newer = found_version.isdecimal() and int(found_version[:9]) > int(version)
        raise UsageError(
            f"{source} has schema {found!r}, but this version of dltune reads {schema!r}",
            remedy="upgrade dltune" if newer else "create the file again with this version",
        )
    try:
        document = msgspec.json.decode(data, type=kind)
    except NOT_JSON as error:
        raise UsageError(f"{source} is invalid: {located(error)}", remedy=_REMEDY) from None
    refuse(source, struct_faults("", document))
    return document


def schema(path: Path) -> str:
    """The schema that a file says it has. Raises UsageError when it cannot be read or has none."""
    return _schema(content(path), "a dltune file", str(path))


def _schema(data: bytes, expected: str, source: str) -> str:
    try:
        return msgspec.json.decode(data, type=_Header).schema
    except NOT_JSON as error:
        what = "is empty" if not data.strip() else f"is not {expected}: {_fault(data, error)}"
        raise UsageError(f"{source} {what}", remedy=_REMEDY) from None


def _fault(data: bytes, error: Exception) -> str:
    """The decoder's sentence; a plain one for what Python's own encoder writes for such numbers."""
    at = re.search(r"\(byte (\d+)\)", str(error))
    found = re.compile(rb"NaN|Infinity").match(data, int(at[1])) if at else None
    if at and found:
        return f"byte {at[1]} is {found[0].decode()}, which is not a number in JSON"
    return located(error)


def located(error: Exception) -> str:
    """The decoder's sentence in plain words, with the path of the field first, where it has one."""
    text, _, where = str(error).partition(" - at `$")
    for words, plain in _PLAIN.items():
        text = re.sub(words, plain, text)
    where = where.rstrip("`").lstrip(".")
    return f"{where}: {text}" if where else text


def now() -> str:
    """This moment, in the form of a document's `created`."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def digest(document: msgspec.Struct) -> str:
    """SHA-256 of the document's content, whatever its file looked like."""
    return hashlib.sha256(encode(document)).hexdigest()


def encode(content: object) -> bytes:
    """Encode as JSON. Text that is not UTF-8, such as old file names, is written as `?`."""
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:
        return msgspec.json.encode(_in_utf8(msgspec.to_builtins(content)))


def _in_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_in_utf8(key): _in_utf8(one) for key, one in value.items()}
    return [*map(_in_utf8, value)] if isinstance(value, list | tuple) else value


def content(path: Path) -> bytes:
    """Content of the file, unpacked if it is gzipped. Raises UsageError, also for more than
    `LONGEST`."""
    try:
        with open(path, "rb") as file:  # once: it can be a pipe
            packed = file.peek(len(_GZIP)).startswith(_GZIP)
            source = gzip.GzipFile(fileobj=file) if packed else file
            data = bytearray()
            while len(data) <= LONGEST and (part := source.read(_PART)):
                data += part
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UsageError(f"{path} is a damaged gzip file", remedy="create the file again") from None
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", remedy="check the path and the permissions"
        ) from None
    if len(data) > LONGEST:
        raise UsageError(f"{path} is larger than {LONGEST >> 30} GiB", remedy="name a smaller file")
    return bytes(data)


# Writing


class Output:
    """A file to be written, claimed before the work begins.

    Made by `claim`. `write` can be called again and again (each time atomically replaces what this
    output wrote before), so that work cut short leaves its last state.
    """

    def __init__(self, path: Path, overwrite: bool) -> None:
        self.path = path
        self._replace = overwrite

    def write(self, document: msgspec.Struct) -> None:
        data = msgspec.json.format(encode(document), indent=1) + b"\n"
        self.write_bytes(gzip.compress(data, mtime=0) if self.path.suffix == ".gz" else data)

    def write_bytes(self, data: bytes) -> None:
        """Raises UsageError when the disk is full or the file appeared meanwhile."""
        path = self.path
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with open(beside, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if not self._replace:
                _reserve(beside, path)
                self._replace = True
            beside.replace(path)
        except FileExistsError:
            raise UsageError(
                f"another process has created {self.path} in the meantime; dltune did not replace "
                "it",
                remedy="choose another output file",
            ) from None
        except OSError as error:
            raise UsageError(
                f"cannot write {self.path}: {error.strerror}", remedy=_OUTPUT
            ) from None
        finally:
            beside.unlink(missing_ok=True)


def _reserve(beside: Path, path: Path) -> None:
    """Raises FileExistsError. With the content written already, where there are hard links."""
    try:
        os.link(beside, path)
    except FileExistsError:
        raise
    except OSError:
        with open(path, "xb"):
            pass


@contextlib.contextmanager
def claim(path: Path, *, overwrite: bool) -> Iterator[Output]:
    """Claim `path` for this process until the block ends.

    Raises UsageError at once, before any work, when the file exists (without `overwrite`), cannot
    be written, or is claimed by another process that is still alive.
    """
    try:
        if path.is_symlink():  # it stays one
            path = path.resolve()
        if path.is_dir():
            raise UsageError(f"{path} is a folder", remedy="name a file")
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a regular file", remedy="name a file")
        if path.exists() and not overwrite:
            raise UsageError(
                f"{path} already exists",
                remedy="choose another name, or pass --overwrite to replace it",
            )
        lock = path.with_name(f".{path.name}.claim")
        handle = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except RuntimeError:
        raise UsageError(f"{path} is a link to itself", remedy="name a file") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", remedy=_OUTPUT) from None
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise UsageError(
            f"another dltune process is writing {path}",
            remedy="wait until it has ended, or choose another name",
        ) from None
    try:
        yield Output(path, overwrite)
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)
