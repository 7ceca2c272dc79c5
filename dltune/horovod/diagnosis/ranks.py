"""Ranks, as the findings name and count them."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.documents.horovod import Rank, ThreadUse


def names(ranks: Sequence[Rank]) -> str:
    numbers = [str(rank.rank) for rank in ranks]
    if len(numbers) > 6:
        return f"{len(numbers)} ranks ({', '.join(numbers[:5])}, ...)"
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


def background(rank: Rank) -> ThreadUse | None:
    return next((t for t in rank.threads if t.tid == rank.background), None)


def wanting(rank: Rank) -> float:
    """Cores that the rank's threads would fill: those they have and those they wait for."""
    return rank.cpu + queued(rank)


def queued(rank: Rank) -> float:
    return sum(thread.wait or 0.0 for thread in rank.threads)
