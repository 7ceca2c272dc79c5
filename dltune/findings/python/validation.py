"""Validation that takes a large part of the time."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.python_samples import at_line, significant_share
from dltune.findings.rule import rule
from dltune.findings.thread_settings import advised
from dltune.schemas.diagnosis import Finding, Gain

SHARE = 0.2  # of the time; a smaller share is a normal cost of validation


@rule(
    "validation",
    "python",
    summary="Validation takes a large part of the time.",
    fix="Validate less often, on a part of the data, or in larger batches.",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find frequent validation. The cost is its share of the samples of the main thread. The lowest
    gain is zero, because the observed validation can be the only one for a long time."""
    validating = significant_share(evidence, "validation")
    if validating is None or evidence.observation is None or validating.share < SHARE:
        return
    options = advised(evidence.framework).validation_options
    seconds = evidence.observation.seconds
    yield Finding(
        title=f"validation takes {validating.share:.0%} of the time ({seconds:.0f} s of "
        "observation)",
        evidence=f"in {validating.share:.0%} of the samples, Python was "
        f"validating{at_line(validating)}",
        fix="if validation is frequent, validate less often, on a part of the data, or in larger "
        f"batches{f' ({options})' if options else ''}",
        share=validating.share,
        gain=Gain(0.0, validating.share),
        confidence="modelled",
    )
