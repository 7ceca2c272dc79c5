"""The cost and the expected gain of a finding, a step's limit, and the texts for a job without
findings."""

from __future__ import annotations

import re

from dltune.documents.diagnosis import Diagnosis, Step
from dltune.documents.finding import Finding
from dltune.findings.diagnosis import LEAST_SHARE

NOTHING = f"no cause costs more than {LEAST_SHARE:.0%} of the time"
# of what its cores can do; above, little can be won by threads and settings
NEAR = 0.8
# of the time; a gain below is none
NONE = 0.005
# of lower case, in contrast to a name or code
_WORD = re.compile(r"(?!dltune\b|py-spy\b)[a-z]+(-[a-z]+)*'?[,:;.]?( |$)")

_SURE = {
    "measured": "measured in this job",
    "modelled": "modelled from measurements of this job",
    "rule": "seen in other jobs",
}


def cost(finding: Finding) -> str:
    """Empty where it is not known."""
    if finding.share is None:
        return ""
    seconds = f" ({finding.seconds * 1e3:.3g} ms per step)" if finding.seconds else ""
    return f"{finding.share:.0%} of the time{seconds}"


def gain(finding: Finding) -> str:
    """Empty where it is not known."""
    if finding.gain is None:
        return ""
    low, high = finding.gain.low, finding.gain.high
    least = f"{1 / (1 - low):.2f}x" if low < 1 else "many times"
    most = f"{1 / (1 - high):.2f}x" if high < 1 else "many times"
    if low < NONE:
        most = f"up to {most}"
    elif least != most:
        most = f"{least} to {most}"
    return f"{most} as fast ({_SURE[finding.confidence]})"


def limit(step: Step) -> str:
    takes = f"a step takes {step.seconds * 1e3:.4g} ms"
    if step.limit is None or step.seconds <= 0:
        return f"{takes}; too few of its ops were measured to say how fast it could be"
    cores = f"{step.cores} cores" if step.cores > 1 else "one core"
    return (
        f"{takes}; if its ops kept {cores} busy all the time, it would take "
        f"{step.limit * 1e3:.4g} ms, so it runs at {step.limit / step.seconds:.0%} of the possible "
        "speed"
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
        "to go further, measure settings on the job with `dltune tune`, or choose a thread count "
        "for each op with `dltune profile` and `dltune plan threads`"
    )


def sentence(text: str) -> str:
    """With a full stop, and a capital letter unless the first word is a name or code."""
    return capital(text) + ("" if text.endswith(".") else ".")


def capital(text: str) -> str:
    return text[:1].upper() + text[1:] if _WORD.match(text) else text
