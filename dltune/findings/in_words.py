"""What a finding costs, and what its cure is expected to bring, in words."""

from __future__ import annotations

from dltune.documents.finding import Finding, Sure

_SURE: dict[Sure, str] = {
    "measured": "measured in this job",
    "modelled": "modelled from what was measured",
    "rule": "as it was in other jobs",
}
# of the step: a gain that need not be there at all
_NOTHING = 0.005


def cost(finding: Finding) -> str:
    """As in "20 ms of a step, 40% of the time"; empty where it is not known."""
    parts = []
    if finding.seconds is not None:
        parts.append(f"{finding.seconds * 1e3:.3g} ms of a step")
    if finding.share is not None:
        parts.append(f"{finding.share:.0%} of the time")
    return ", ".join(parts)


def gain(finding: Finding) -> str:
    """As in "9% to 14% of the step"; empty where it is not known."""
    if finding.gain is None:
        return ""
    low, high = finding.gain.low, finding.gain.high
    return (
        f"at most {high:.0%} of the step"
        if low < _NOTHING
        else f"{low:.0%} to {high:.0%} of the step"
    )


def figures(finding: Finding) -> str:
    """Cost, gain, and how sure they are; empty where neither is known."""
    costs, expected = cost(finding), gain(finding)
    parts = [f"costs {costs}"] if costs else []
    if expected:
        parts.append(f"expected gain: {expected}")
    return f"{'; '.join(parts)} ({_SURE[finding.sure]})" if parts else ""
