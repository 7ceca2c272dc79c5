"""The share of the time in the job's own Python code."""

from __future__ import annotations

from dltune.findings.data.waits import main_thread_waits
from dltune.findings.evidence import Evidence
from dltune.findings.python_samples import is_significant, lock_share, significant_share
from dltune.schemas.diagnosis import Share


def script_share(evidence: Evidence) -> tuple[Share, float] | None:
    """Return the samples in the job's own Python code, and their share of the time without waits
    for storage and for the interpreter's lock of a generator; None if the share is small."""
    python = significant_share(evidence, "python")
    if python is None:
        return None
    share = python.share - main_thread_waits(evidence) - lock_share(evidence)
    return (python, share) if is_significant(evidence, share) else None
