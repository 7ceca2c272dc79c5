"""A search for settings while it goes on, on stderr."""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence

import click

from dltune.base.formatting import Table, columns
from dltune.cli.progress import live
from dltune.cli.tune_tables import one_trial
from dltune.plan.settings.effects import in_words
from dltune.schemas.bench import Trial
from dltune.tune.search import Progress

# trials that are shown, the latest
SHOWN = 8


class View:
    """Live view; `refresh` is set while it is shown."""

    def __init__(self) -> None:
        self.refresh: Callable[[], None] = lambda: None
        self._progress: Progress | None = None
        self._waits_for = ""
        self._trials: list[Trial] = []

    def progress(self, progress: Progress) -> None:
        self._progress = progress
        self._waits_for = ""
        self.refresh()

    def waits_for(self, what: str) -> None:
        """Show the cause of a start's wait; empty: the start just takes its time."""
        if what or self._waits_for:
            self._waits_for = what
            self.refresh()

    def trial(self, trial: Trial) -> None:
        self._trials.append(trial)
        if sys.stderr.isatty():
            self.refresh()
        else:
            click.echo(f"dltune: {one_trial(trial)}", err=True)

    def summary(self) -> str:
        if self._progress is None:
            return self._waits_for or "starting the job as found"
        parts = [
            self._waits_for or self._progress.phase,
            f"best so far: {in_words(self._progress.incumbent)}",
        ]
        if not sys.stderr.isatty():  # there are no tables
            for candidate, ratios in self._progress.racing.items():
                parts.append(f"{in_words(candidate)}: {_median(ratios)}, {len(ratios)} rounds")
        return "; ".join([*parts, f"about {max(self._progress.left, 0):.0f} s left"])

    def tables(self) -> Sequence[Table]:
        racing = [
            (in_words(candidate), str(len(ratios)), _median(ratios))
            for candidate, ratios in (self._progress.racing.items() if self._progress else ())
        ]
        done = [
            (in_words(trial.candidate), trial.verdict, _median(trial.ratios))
            for trial in self._trials[-SHOWN:]
        ]
        both = (
            Table("", columns("candidate", "rounds", "time ratio"), racing),
            Table("", columns("finished trial", "verdict", "time ratio"), done),
        )
        return [table for table in both if table.rows]


@contextlib.contextmanager
def shown(command: Sequence[str]) -> Iterator[View]:
    """The view for the time of a block."""
    view = View()
    with live(f"tuning {' '.join(command)}", view.summary, view.tables) as refresh:
        view.refresh = refresh
        yield view


def _median(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.3f}" if ratios else "-"
