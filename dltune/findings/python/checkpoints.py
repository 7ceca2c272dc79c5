"""Checkpoints that are saved too often."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.looked import at, where
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.frameworks.capabilities import framework


@rule(
    "checkpoints",
    "python",
    summary="The job saves checkpoints too often.",
    fix="Save less often (every few minutes, or once per epoch), or in the background.",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the looks that found the main thread at it. The least gain is none, for it may have
    been the only one for long."""
    saving = at(seen, "saving")
    if saving is None or seen.observation is None:
        return
    beside = framework(seen.framework).background_save
    yield Finding(
        title=f"saving takes {saving.share:.0%} of the time ({seen.observation.seconds:.0f} s of "
        "observation)",
        evidence=f"in {saving.share:.0%} of the samples, Python was saving{where(saving)} and no "
        "step ran",
        fix="if saving is frequent, save every few minutes or once per epoch, or in the background"
        + (f" ({beside})" if beside else ""),
        share=saving.share,
        gain=Gain(0.0, saving.share),
        confidence="modelled",
    )
