"""Every error that dltune reports to a person.

    DltuneError            exit code 1
    ├── UsageError         exit code 2: wrong input or wrong use
    ├── GateFailed         exit code 1: a limit does not hold
    └── JobFailed          the job's own exit code

The message says what was wrong and where; `remedy` says what to do about it. `dltune.cli.main`
catches these once and prints them without a traceback. Anything else that escapes is a defect.
"""

from __future__ import annotations


class DltuneError(Exception):
    """Something a person must know. `remedy` is one sentence on what to do next."""

    exit_code = 1

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


class UsageError(DltuneError):
    """Wrong input or wrong use: a file, an option, a command that cannot be run."""

    exit_code = 2


class GateFailed(DltuneError):
    """A performance limit does not hold."""


class JobFailed(DltuneError):
    """The job itself failed; its exit code becomes dltune's."""

    def __init__(self, message: str, exit_code: int, *, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.exit_code = exit_code
