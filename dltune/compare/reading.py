"""Read two documents of one kind and compare them."""

from __future__ import annotations

from pathlib import Path

from dltune.compare import benches, profiles
from dltune.documents import bench, files, profile
from dltune.errors import UsageError
from dltune.visible import visible

COMPARED = ("dltune.profile", "dltune.bench")


def compared(a: Path, b: Path) -> profiles.Comparison | benches.Comparison:
    """Raises UsageError when the two are not of one kind, or of one that is not compared."""
    kinds = [files.schema(path).rpartition("/")[0] for path in (a, b)]
    for path, kind in zip((a, b), kinds, strict=True):
        if kind not in COMPARED:
            raise UsageError(
                f"{path} is a {kind!r} document, which cannot be compared",
                remedy=f"pass two files of one kind: {' or '.join(COMPARED)}",
            )
    if kinds[0] != kinds[1]:
        raise UsageError(
            f"{a} is a {kinds[0]} document and {b} a {kinds[1]} document",
            remedy="pass two profiles, or two bench results",
        )
    if kinds[0] == "dltune.bench":
        results = bench.load(a), bench.load(b)
        for path, result in zip((a, b), results, strict=True):
            _require(path, any(setting.turns for setting in result.settings), result.partial)
        return benches.compare(*results)
    measured = profile.load(a), profile.load(b)
    for path, found in zip((a, b), measured, strict=True):
        _require(path, bool(found.ops or found.steps), found.partial)
    return profiles.compare(*measured)


def _require(path: Path, measured: bool, partial: str | None) -> None:
    if not measured:
        why = f" ({visible(partial)})" if partial else ""
        raise UsageError(f"{path} contains no measurements{why}", remedy="measure again")
