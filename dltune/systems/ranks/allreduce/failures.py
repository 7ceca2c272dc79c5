"""The first rank of a job to fail, with its reason, apart from ranks that failed because of it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from dltune.job.failures import tells_of_another


@dataclass
class RankExit:
    """The end of a rank. `at`: monotonic seconds. `error`: the exception that the rank itself
    reported; `code`: exit code, or the signal as a negative number, None when the kernel did not
    report it."""

    rank: int
    pid: int
    at: float
    error: str | None = None
    code: int | None = None

    @property
    def followed(self) -> bool:
        """True if it failed because another rank was gone, or was ended by the launcher."""
        if self.error is not None:
            return tells_of_another(self.error)
        return self.ended

    @property
    def ended(self) -> bool:
        """True if somebody asked it to end, and it did."""
        return self.error is None and self.code in (-signal.SIGTERM, -signal.SIGINT)

    @property
    def reason(self) -> str:
        if self.error is not None:
            return self.error
        if self.code is None:
            return "it ended, exit code unknown"
        if self.code < 0:
            return f"it was stopped by {signal.Signals(-self.code).name}"
        return f"it ended with exit code {self.code}"


def in_words(exits: list[RankExit], name: Callable[[RankExit], str]) -> str | None:
    """One sentence on the first that failed, and on who followed; None when none failed."""
    failed = [one for one in exits if one.error is not None or one.code != 0]
    if not failed:
        return None
    if len(failed) > 1 and all(one.ended for one in failed):  # by the user, or by the launcher
        signals = sorted({signal.Signals(-(one.code or 0)).name for one in failed})
        names = sorted(failed, key=lambda one: one.rank)
        return f"{', '.join(map(name, names))} were stopped by {' and '.join(signals)}"
    first = min(failed, key=lambda one: (one.followed, one.at))
    text = f"{name(first)} failed first: {first.reason}"
    others = sorted((one for one in exits if one is not first), key=lambda one: one.rank)
    if others:
        text += f"; {', '.join(map(name, others))} followed"
    return text
