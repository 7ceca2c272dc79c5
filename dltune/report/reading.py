"""Which kind of document a file is, and the module that shows it.

A kind is one file in `report/kinds`, found by the document's schema: no list to keep.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgspec

from dltune.documents import files
from dltune.errors import UsageError
from dltune.report import kinds
from dltune.report.section import Context, Kind, Loaded


def known() -> list[str]:
    """Kinds that can be shown, such as "dltune.profile"."""
    found = sorted(module.name for module in pkgutil.iter_modules(kinds.__path__))
    return [f"dltune.{name.replace('_', '-')}" for name in found if not name.startswith("_")]


def module(kind: str) -> Kind:
    """The module that shows `kind`, one of `known()`."""
    name = kind.removeprefix("dltune.").replace("-", "_")
    return cast(Kind, importlib.import_module(f"dltune.report.kinds.{name}"))


def read(paths: Sequence[Path]) -> Context:
    """All documents, each loaded and checked by its kind.

    Raises UsageError for a file that is none of the known kinds, has faults, or is named twice.
    """
    seen: set[Path] = set()
    loaded = []
    for index, path in enumerate(paths):
        if path.resolve() in seen:
            raise UsageError(f"{path} is named twice", remedy="name each file once")
        seen.add(path.resolve())
        kind, _, _ = files.schema(path).rpartition("/")
        if kind not in known():
            raise UsageError(
                f"{path} is a {kind!r} document, which a report cannot show",
                remedy=f"name files of: {', '.join(known())}",
            )
        document: msgspec.Struct = module(kind).load(path)
        loaded.append(Loaded(path, kind, document, f"d{index}"))
    return Context(tuple(loaded))
