"""Progress on stderr: a live line or view on a terminal, a line per change elsewhere."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status

    from dltune.base.formatting import Table
    from dltune.profile.session import Progress

log = logging.getLogger(__name__)

# without a terminal, changes within a phase are shown after so many seconds
QUIET_SECONDS = 15.0


class Line:
    def __init__(self, status: Status | None) -> None:
        self._status = status
        self._told: set[str] = set()
        self._same: tuple[object, ...] = ()
        self._when = -math.inf

    def tell(self, progress: Progress) -> None:
        """Show where a profiling session is."""
        text = progress.phase
        if progress.step:
            text += f", step {progress.step}"
        if progress.case:
            threads, placement = progress.case
            text += f", {threads} thread{'s' * (threads > 1)} ({placement} placement)"
            if progress.climbing:
                text += f", {progress.climbing} ops left"
        if progress.left is not None:
            text += f", about {progress.left:.0f} s left"
        self.show(text, (progress.phase, progress.case))

    def show(self, text: str, same: tuple[object, ...]) -> None:
        """Show `text`; elsewhere than on a terminal only when `same` has changed or time passed,
        and never the same line again: it would add nothing."""
        if self._status is not None:
            if same != self._same:
                self._same = same
                log.debug("%s", text)
            self._status.update(text)
            return
        now = time.monotonic()
        if text not in self._told and (same != self._same or now - self._when >= QUIET_SECONDS):
            self._told.add(text)
            self._same, self._when = same, now
            self.say(text)

    def say(self, text: str) -> None:
        """A line that stays."""
        log.debug("%s", text)
        if self._status is not None:
            self._status.console.print(f"dltune: {text}", markup=False, highlight=False)
        else:
            print(f"dltune: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def line() -> Iterator[Line]:
    """The progress line for the time of a block."""
    if not sys.stderr.isatty():
        yield Line(None)
        return
    from rich.console import Console

    with Console(stderr=True).status("starting the job") as status:
        yield Line(status)


@contextlib.contextmanager
def live(
    subject: str, summary: Callable[[], str], tables: Callable[[], Sequence[Table]]
) -> Iterator[Callable[[], None]]:
    """A live view on stderr: shows `summary`, and on a terminal `tables` below it, whenever the
    function is called; elsewhere a line now and then."""
    if not sys.stderr.isatty():
        line = Line(None)
        line.show(subject, ())
        yield lambda: line.show(summary(), ())
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from dltune.cli.tables import drawn

    with Live(
        Text(subject), console=Console(stderr=True), auto_refresh=False, transient=True
    ) as shown:
        yield lambda: shown.update(
            Group(Text(summary()), *(drawn(table) for table in tables())), refresh=True
        )
