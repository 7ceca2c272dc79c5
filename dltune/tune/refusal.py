"""Reasons why a job was refused: for the search, and for a person if it is the job as given."""

from __future__ import annotations

import re
from pathlib import Path

from dltune.base.errors import DltuneError, JobFailed, UsageError
from dltune.job.failures import last_lines
from dltune.schemas.settings import Choice
from dltune.tune.candidate import Candidate
from dltune.tune.evaluator import Refused
from dltune.tune.tried import Tried

# of the job's output, in a reason
SHOWN_LINES = 3
PORT_TAKEN = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)
TOO_SELDOM = "its main step graph runs too rarely to be timed"


class RefusedError(Exception):
    """`error` is shown to a person when the job cannot be measured as it was given."""

    def __init__(self, refused: Refused, error: DltuneError) -> None:
        super().__init__(refused.why)
        self.refused = refused
        self.error = error


def failed(error: DltuneError, log: Path | None = None, why: str = "") -> RefusedError:
    """The job failed, and wrote its last words to `log`. `why`: the reason for the search
    instead."""
    written = last_lines(log) if log else []
    lines = [line.strip() for line in written if line.strip()][-SHOWN_LINES:]
    said = why or str(error)
    if lines:
        error.args = ("\n  ".join((f"{error}; its last lines:", *lines)), *error.args[1:])
    return RefusedError(Refused("failed", "; ".join([said, *lines])), error)


def ended(tried: Tried, log: Path) -> RefusedError:
    """The job has ended by itself before it was measured."""
    code = tried.exit_code
    if tried.steps is None:
        why = f"exit code {code} before its steps were known"
        if tried.applied.choices and any(map(PORT_TAKEN.search, last_lines(log))):
            why = f"another candidate's job already uses its port; {why}"
        return failed(tried.why_no_step(), log, why)
    message = f"the job ended with exit code {code} before enough steps were measured"
    if code:
        return failed(JobFailed(message, code), log, f"exit code {code} while it was measured")
    return failed(UsageError(message, remedy="let the job train for more steps"), log)


def no_effect(candidate: Candidate, choice: Choice, why: str) -> RefusedError:
    """There is nothing that one of the candidate's choices acts on."""
    said = why if len(candidate) == 1 else f"{choice}: {why}"
    return RefusedError(Refused("no effect", said), UsageError(said, remedy=None))
