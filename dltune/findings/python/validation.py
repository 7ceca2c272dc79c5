"""Validation that takes a large part of the time."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.looked import at, where
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

SHARE = 0.2  # of the time; less is what validation is worth


@rule(
    "validation",
    "python",
    summary="Validation that takes a large part of the time.",
    fix="",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the looks that found the main thread at it. The least gain is none, for it may have
    been the only one for long."""
    validating = at(seen, "validation")
    if validating is None or seen.observation is None or validating.share < SHARE:
        return
    keras = " (fit's validation_freq, validation_steps, validation_batch_size)"
    seconds = seen.observation.seconds
    yield Finding(
        cause="validation",
        title=f"validation took {validating.share:.0%} of the {seconds:.0f} s that were watched",
        evidence=f"Python was at validation{where(validating)} in {validating.share:.0%} of looks",
        fix="if that is not the only time for long, validate less often, on a part, or in larger "
        f"batches{'' if seen.framework == 'pytorch' else keras}",
        share=validating.share,
        gain=Gain(0.0, validating.share),
        confidence="modelled",
    )
