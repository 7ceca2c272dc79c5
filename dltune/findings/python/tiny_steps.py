"""Steps that are over sooner than what Keras does around each."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.documents.sections.settings import Choice
from dltune.findings.python.looked import at
from dltune.findings.seen import Seen

# steps in one execution, after which little of Python's part is left
AT_ONCE = 32


def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the looks that found the main thread in Keras' loop, and in no step."""
    fit = at(seen, "fit")
    if fit:
        yield Finding(
            "tiny-steps",
            f"Keras' loop takes {fit.share:.0%} of the time, around steps that are short",
            f"in {fit.share:.0%} of looks the main thread was in fit, and in no step",
            f"run several steps in one execution: compile(steps_per_execution={AT_ONCE}), or "
            "larger batches; callbacks see every execution only",
            share=fit.share,
            gain=Gain(0.5 * fit.share, fit.share),
            sure="measured",
            choices=(Choice("steps_per_execution", str(AT_ONCE)),),
            tries=("steps_per_execution",),
        )
