"""Figures taken out of tensors in Python."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.python.looked import at, where
from dltune.findings.seen import Seen


def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the looks that found the main thread at it."""
    reading = at(seen, "reading")
    if reading:
        yield Finding(
            "host-reads",
            f"Python reads tensors one by one in {reading.share:.0%} of the time",
            f"most often{where(reading)}, in .numpy(), float() or another conversion",
            "keep metrics in the graph, read them every hundredth step, and all in one call",
            share=reading.share,
            gain=Gain(0.0, reading.share),
            sure="measured",
        )
