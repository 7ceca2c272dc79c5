"""Figures in the words of sentences and tables."""

from __future__ import annotations

from pathlib import Path

from dltune.documents.io import Ceiling, Experiment, Storage


def size(value: float | None) -> str:
    """Bytes: "812 B", "64 KiB", "1.5 GiB"; "?" for what is not known."""
    if value is None:
        return "?"
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if value >= 1 << shift:
            scaled = value / (1 << shift)
            return f"{scaled:.0f} {unit}" if scaled >= 10 else f"{scaled:.1f} {unit}"
    return f"{value:.0f} B"


def rate(value: float | None) -> str:
    """Bytes a second."""
    return "?" if value is None else f"{size(value)}/s"


def requests(ceiling: Ceiling) -> str:
    """How the most that a storage gave was asked for."""
    how = "O_DIRECT" if ceiling.method == "direct" else ceiling.method
    at_once = f"{ceiling.parallel} at once" if ceiling.parallel > 1 else "one after the other"
    return f"requests of {size(ceiling.block)}, {at_once} ({how})"


def ceiling(experiment: Experiment) -> str:
    """The most that the storage gave, and what of it the present way of reading reaches."""
    most = experiment.ceiling
    return (
        f"the storage gave at most {rate(most.throughput.median)} ±{most.throughput.spread:.0%}, "
        f"by {requests(most)}; one reader through a mapping reaches "
        f"{share(experiment.share_of_ceiling)} of it"
    )


def place(storage: Storage) -> str:
    """What data lies on, and what is known of it."""
    parts = [f"{storage.kind} on {storage.source}"]
    if storage.read_ahead is not None:
        parts.append(f"read-ahead {size(storage.read_ahead)}")
    if storage.scheduler:
        parts.append(f"scheduler {storage.scheduler}")
    if storage.rotational is not None:
        parts.append("rotational" if storage.rotational else "not rotational")
    return ", ".join(parts)


def share(value: float | None) -> str:
    """A share as a percentage; small ones with a decimal."""
    if value is None:
        return "?"
    return f"{value:.0%}" if value >= 0.1 or value == 0 else f"{value:.1%}"


def count(value: float | None) -> str:
    """A number of things, in groups of three digits."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def file_name(path: str) -> str:
    """The last part of a path, with its folder when it is a common name."""
    whole = Path(path)
    return f"{whole.parent.name}/{whole.name}" if whole.name == "data.mdb" else whole.name
