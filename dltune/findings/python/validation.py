"""Validation that takes a large part of the time."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.looked import at, where
from dltune.findings.seen import Seen

SHARE = 0.2  # of the time; less is what validation is worth


def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the looks that found the main thread at it."""
    validating = at(seen, "validation")
    if validating and validating.share >= SHARE:
        yield Finding(
            "validation",
            f"{validating.share:.0%} of the time goes into validation",
            f"Python was at validation{where(validating)} in {validating.share:.0%} of looks",
            "validate less often or on a part: validation_freq, validation_steps, and a larger "
            "validation_batch_size",
            share=validating.share,
            gain=Gain(0.5 * validating.share, validating.share),
            sure="measured",
        )
