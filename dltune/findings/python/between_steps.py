"""The job's own Python between the steps."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.python.looked import at
from dltune.findings.seen import Seen


def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the looks that found the main thread at it, and at nothing that is known."""
    python = at(seen, "python")
    if python:
        lines = " and ".join(f"{line.where} ({line.share:.0%})" for line in python.lines[:2])
        yield Finding(
            "between-steps",
            f"the job's own Python takes {python.share:.0%} of the time between the steps",
            f"most often at {lines}" if lines else "at no line of the job's own",
            "do it in the step's tf.function, less often, or in a thread beside the steps",
            share=python.share,
            gain=Gain(0.0, python.share),
            sure="measured",
        )
