"""Validation that takes a large part of the time."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.looked import at, where
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.findings.thread_settings import advised

SHARE = 0.2  # of the time; less is what validation is worth


@rule(
    "validation",
    "python",
    summary="Validation takes a large part of the time.",
    fix="Validate less often, on a part of the data, or in larger batches.",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the looks that found the main thread at it. The least gain is none, for it may have
    been the only one for long."""
    validating = at(seen, "validation")
    if validating is None or seen.observation is None or validating.share < SHARE:
        return
    options = advised(seen.framework).validation_options
    seconds = seen.observation.seconds
    yield Finding(
        title=f"validation takes {validating.share:.0%} of the time ({seconds:.0f} s of "
        "observation)",
        evidence=f"in {validating.share:.0%} of the samples, Python was "
        f"validating{where(validating)}",
        fix="if validation is frequent, validate less often, on a part of the data, or in larger "
        f"batches{f' ({options})' if options else ''}",
        share=validating.share,
        gain=Gain(0.0, validating.share),
        confidence="modelled",
    )
