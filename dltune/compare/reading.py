"""Read two documents of one kind and compare them."""

from __future__ import annotations

from pathlib import Path

from dltune.compare import benches, profiles
from dltune.documents import bench, files, profile
from dltune.errors import UsageError

COMPARED = ("dltune.profile", "dltune.bench")


def compared(a: Path, b: Path) -> profiles.Comparison | benches.Comparison:
    """Raises UsageError when the two are not of one kind, or of one that is not compared."""
    kinds = [files.schema(path).rpartition("/")[0] for path in (a, b)]
    for path, kind in zip((a, b), kinds, strict=True):
        if kind not in COMPARED:
            raise UsageError(
                f"{path} is a {kind!r} document, which is not compared",
                remedy=f"name two files of one kind: {' or '.join(COMPARED)}",
            )
    if kinds[0] != kinds[1]:
        raise UsageError(
            f"{a} is a {kinds[0]} document and {b} a {kinds[1]} one",
            remedy="compare two profiles, or two bench results",
        )
    if kinds[0] == "dltune.bench":
        return benches.compare(bench.load(a), bench.load(b))
    return profiles.compare(profile.load(a), profile.load(b))
