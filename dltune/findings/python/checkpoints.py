"""Checkpoints that the job saves too often."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.python_samples import at_line, significant_share
from dltune.findings.rule import rule
from dltune.frameworks.capabilities import framework
from dltune.schemas.diagnosis import Finding, Gain


@rule(
    "checkpoints",
    "python",
    summary="The job saves checkpoints too often.",
    fix="Save less often (every few minutes, or once per epoch), or in the background.",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find frequent saving. The cost is its share of the samples of the main thread. The lowest
    gain is zero, because the observed checkpoint can be the only one for a long time."""
    saving = significant_share(evidence, "saving")
    if saving is None or evidence.observation is None:
        return
    seconds = evidence.observation.seconds
    background = framework(evidence.framework).background_save
    yield Finding(
        title=f"saving takes {saving.share:.0%} of the time ({seconds:.0f} s of observation)",
        evidence=f"in {saving.share:.0%} of the samples, Python was saving{at_line(saving)} and no "
        "step ran",
        fix="if saving is frequent, save every few minutes or once per epoch, or in the background"
        + (f" ({background})" if background else ""),
        share=saving.share,
        gain=Gain(0.0, saving.share),
        confidence="modelled",
    )
