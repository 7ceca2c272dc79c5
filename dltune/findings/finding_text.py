"""Texts for the cost and the expected gain of findings, for a step's limit, and for a job without
findings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from dltune.base.formatting import visible
from dltune.findings.diagnosis import MIN_SHARE
from dltune.schemas.diagnosis import Diagnosis, Finding, Step

NO_CAUSE = f"no cause costs more than {MIN_SHARE:.0%} of the time"
# share of the speed that the cores allow; above it, threads and settings gain little
NEAR = 0.8
# share of the time; a smaller gain counts as none
MIN_GAIN = 0.005
# a word in lower case, but not a name or code
_WORD = re.compile(r"(?!dltune\b|py-spy\b)[a-z]+(-[a-z]+)*'?[,:;.]?( |$)")

_CONFIDENCE = {
    "measured": "measured in this job",
    "modelled": "modelled from measurements of this job",
    "rule": "seen in other jobs",
}


def format_cost(finding: Finding) -> str:
    """Return the cost, or an empty text if it is unknown."""
    if finding.share is None:
        return ""
    seconds = f" ({finding.seconds * 1e3:.3g} ms per step)" if finding.seconds else ""
    return f"{finding.share:.0%} of the time{seconds}"


def format_gain(finding: Finding) -> str:
    """Return the expected gain, or an empty text if it is unknown."""
    if finding.gain is None:
        return ""
    low, high = finding.gain.low, finding.gain.high
    lowest = f"{1 / (1 - low):.2f}x" if low < 1 else "many times"
    highest = f"{1 / (1 - high):.2f}x" if high < 1 else "many times"
    if low < MIN_GAIN:
        highest = f"up to {highest}"
    elif lowest != highest:
        highest = f"{lowest} to {highest}"
    return f"{highest} as fast ({_CONFIDENCE[finding.confidence]})"


def format_limit(step: Step) -> str:
    """Return the time of a step and its limit."""
    takes = f"a step takes {step.seconds * 1e3:.4g} ms"
    if step.limit is None or step.seconds <= 0:
        return f"{takes}; too few of its ops were measured to say how fast it could be"
    cores = f"{step.cores} cores" if step.cores > 1 else "one core"
    return (
        f"{takes}; if its ops kept {cores} busy all the time, it would take {step.limit * 1e3:.4g} "
        f"ms, so it runs at {step.limit / step.seconds:.0%} of the possible speed"
    )


def suggest_next(diagnosis: Diagnosis) -> str:
    """Return a way to make a healthy job faster; an empty text if its step is near the limit, or if
    the limit is unknown."""
    step = diagnosis.step
    if not diagnosis.healthy or step is None or step.limit is None:
        return ""
    if step.limit >= NEAR * step.seconds:
        return ""
    return (
        "to go further, measure settings on the job with `dltune tune`, or choose a thread count "
        "for each op with `dltune profile` and `dltune plan threads`"
    )


def next_step(diagnosis: Diagnosis, job: Sequence[str], plan: Path | None) -> str:
    """The next command to type, or an empty string. `plan`: the plan that was written."""
    if not diagnosis.findings:
        return to_sentence(words) if (words := suggest_next(diagnosis)) else ""
    command = visible(shlex.join(job), 4000) if job else "CMD"
    if plan:
        return f"Next: dltune run --plan {shlex.quote(str(plan))} -- {command}"
    if any(finding.apply for finding in diagnosis.findings):
        return (
            "Next: repeat with --plan plan.json, then start the job with "
            f"`dltune run --plan plan.json -- {command}`."
        )
    if names := dict.fromkeys(name for one in diagnosis.findings for name in one.try_next):
        return (
            f"Next: `dltune tune --only {','.join(names)} -- {command}` measures these settings "
            "on the job."
        )
    return "Next: apply the first fix, then run `dltune diagnose` again."


def to_sentence(text: str) -> str:
    """Add a full stop, and a capital letter unless the first word is a name or code."""
    return capitalize(text) + ("" if text.endswith(".") else ".")


def capitalize(text: str) -> str:
    """Start a text with a capital letter unless its first word is a name or code."""
    return text[:1].upper() + text[1:] if _WORD.match(text) else text
