"""Compare two files of the same kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dltune import extensions
from dltune.base import documents
from dltune.base.errors import UsageError

if TYPE_CHECKING:
    from dltune.compare import benches, profiles


def compared(a: Path, b: Path) -> profiles.Comparison | benches.Comparison:
    """Return the differences. Raises UsageError if the files have different kinds, or a kind that
    cannot be compared."""
    targets = {
        name: kind.compare
        for name in extensions.names("documents")
        if (kind := extensions.find("documents", name)).compare
    }
    kinds = [documents.schema(path).rpartition("/")[0] for path in (a, b)]
    for path, kind in zip((a, b), kinds, strict=True):
        if kind not in targets:
            raise UsageError(
                f"{path} is a {kind!r} document, which cannot be compared",
                remedy=f"pass two files of one kind: {' or '.join(targets)}",
            )
    if kinds[0] != kinds[1]:
        raise UsageError(
            f"{a} is a {kinds[0]} document and {b} a {kinds[1]} document",
            remedy="pass two profiles, or two bench results",
        )
    comparison: profiles.Comparison | benches.Comparison = extensions.load(targets[kinds[0]])(a, b)
    return comparison
