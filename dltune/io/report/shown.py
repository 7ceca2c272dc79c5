"""What a storage is and gave, in words."""

from __future__ import annotations

from dltune.documents.io import Experiment, Storage
from dltune.words import rate, share, size


def ceiling(experiment: Experiment) -> str:
    """The most that the storage gave, and what of it the present way of reading reaches."""
    most = experiment.ceiling
    return (
        f"the fastest reading was {rate(most.throughput.median)} ±{most.throughput.spread:.0%} "
        f"({most.requests}); one reader through a memory mapping reaches "
        f"{share(experiment.share_of_ceiling)} of that"
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
