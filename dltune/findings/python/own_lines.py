"""The lines of the job's own at which its main thread was seen."""

from __future__ import annotations

from dltune.documents.observation import Share
from dltune.findings.data.waits import main_thread_waits
from dltune.findings.looked import at, costs, lock_share
from dltune.findings.seen import Seen


def own_share(seen: Seen) -> tuple[Share, float] | None:
    """The looks that found the main thread at the job's own Python, and what of the time that
    takes, without its waits for storage or for the lock of a generator's Python; None where that is
    little."""
    python = at(seen, "python")
    share = python.share - main_thread_waits(seen) - lock_share(seen) if python else 0.0
    return (python, share) if python and costs(seen, share) else None
