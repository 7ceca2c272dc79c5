"""Changes and differences between two files, and the comparison of two files of the same kind.

A `Change` compares one quantity: B over A, with the interval that noise leaves it. A `Difference`
is a fact that is not the same in both files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from dltune import extensions
from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.base.formatting import visible
from dltune.schemas.machine import Machine

if TYPE_CHECKING:
    from dltune.compare import benches, profiles


Verdict = Literal["slower", "faster", "noise", "too few samples"]


class Change(msgspec.Struct, frozen=True):
    """`a` and `b` in seconds; `ratio` is b / a, between `low` and `high` with what confidence the
    comparison says (None: too few samples)."""

    a: float
    b: float
    ratio: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> Verdict:
        if self.low is None or self.high is None:
            return "too few samples"
        return "slower" if self.low > 1 else "faster" if self.high < 1 else "noise"

    @property
    def seconds(self) -> float:
        return self.b - self.a


class Difference(msgspec.Struct, frozen=True):
    """A fact that is not the same in both: `what`, and its value in each."""

    what: str
    a: str
    b: str


def differences(a: Mapping[str, object], b: Mapping[str, object]) -> tuple[Difference, ...]:
    """Facts that differ between A and B."""
    return tuple(
        Difference(what, _text(value), _text(b[what]))
        for what, value in a.items()
        if value != b[what]
    )


def machine_facts(machine: Machine) -> dict[str, object]:
    return {
        "machine": machine.name,
        "cores": len(machine.cores),
        "CPU quota": machine.quota,
        "topology or CPUs": machine.fingerprint,
    }


def _text(value: object) -> str:
    return "none" if value is None else str(value)


# The comparison of two files of the same kind
def require_measured(path: Path, is_measured: bool, partial: str | None) -> None:
    """Raise UsageError for a document without measurements. `partial`: why it is incomplete."""
    if not is_measured:
        why = f" ({visible(partial)})" if partial else ""
        raise UsageError(f"{path} contains no measurements{why}", remedy="measure again")


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
