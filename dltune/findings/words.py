"""What a finding costs and what its cure may bring, a step's limit, and what is told where nothing
was found."""

from __future__ import annotations

from dltune.documents.diagnosis import Diagnosis, Step
from dltune.documents.finding import Finding
from dltune.findings.diagnosis import LEAST_SHARE

NOTHING = f"nothing was found that costs more than {LEAST_SHARE:.0%} of the time"
# of what its cores can do; above, little can be won by threads and settings
NEAR = 0.8

_SURE = {
    "measured": "measured in this job",
    "modelled": "by a model of what was measured",
    "rule": "as it was in other jobs",
}


def cost(finding: Finding) -> str:
    """Empty where it is not known."""
    if finding.share is None:
        return ""
    seconds = f" ({finding.seconds * 1e3:.3g} ms of a step)" if finding.seconds else ""
    return f"{finding.share:.0%} of the time{seconds}"


def gain(finding: Finding) -> str:
    """Empty where it is not known."""
    if finding.gain is None:
        return ""
    low, high = finding.gain.low, finding.gain.high
    most = f"{1 / (1 - high):.2f}x as fast" if high < 1 else "many times as fast"
    share = f"at most {most}" if low < 0.005 else f"{1 / (1 - low):.2f}x to {most}"
    return f"{share}, {_SURE[finding.confidence]}"


def limit(step: Step) -> str:
    told = f"a step takes {step.seconds * 1e3:.4g} ms"
    if step.limit is None or step.seconds <= 0:
        return told
    cores = f"{step.cores} cores" if step.cores > 1 else "one core"
    return (
        f"{told}, and runs at {step.limit / step.seconds:.2f} of what {cores} can do: its ops need "
        f"{step.limit * 1e3:.4g} ms of them"
    )


def further(diagnosis: Diagnosis) -> str:
    """How a healthy job may still be made faster; empty where its step is near its limit, or that
    is not known."""
    step = diagnosis.step
    if not diagnosis.healthy or step is None or step.limit is None:
        return ""
    if step.limit >= NEAR * step.seconds:
        return ""
    return (
        "to go further: `dltune tune` measures settings on the job itself; `dltune profile` and "
        "`dltune plan` decide threads op by op"
    )
