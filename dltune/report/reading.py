"""The documents of a page, from their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dltune import extensions
from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.extensions import DocumentKind
from dltune.views import Context, Loaded


def known() -> list[str]:
    """Return the kinds that have a view, such as "dltune.profile"."""
    return sorted(name for name in extensions.names("documents") if _kind(name).view)


def read(paths: Sequence[Path]) -> Context:
    """Return all documents, each loaded and checked by its kind.

    Raises UsageError for a file that is none of the known kinds, has faults, or is named twice.
    """
    seen: set[Path] = set()
    loaded = []
    for index, path in enumerate(paths):
        if path.resolve() in seen:
            raise UsageError(f"{path} is named twice", remedy="name each file once")
        seen.add(path.resolve())
        name, _, _ = documents.schema(path).rpartition("/")
        if name not in known():
            remedy = f"name files of: {', '.join(known())}"
            if name not in extensions.names("documents"):
                remedy += "; or install the system or package that reads this kind"
            raise UsageError(
                f"{path} is a {name!r} document, which a report cannot show", remedy=remedy
            )
        document = extensions.load(_kind(name).load)(path)
        loaded.append(Loaded(path, name, document, f"d{index}"))
    return Context(loaded)


def _kind(name: str) -> DocumentKind:
    kind = extensions.find("documents", name)
    assert isinstance(kind, DocumentKind)
    return kind
