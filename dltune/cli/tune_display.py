"""A search for settings: its result on stdout, and a live view on stderr while it goes on."""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence

import click
from msgspec.structs import replace

from dltune.base.formatting import Table, columns
from dltune.cli import terminal
from dltune.cli.terminal import live
from dltune.plan.settings.show import effects, in_words, speed
from dltune.schemas.bench import Trial
from dltune.schemas.settings import SettingsPlan, Untried
from dltune.tune.search import Progress
from dltune.views import Context, Piece, Section, View

# The result on stdout

# characters of a reason in a line
_WHY = 60


def view(section: SettingsPlan, _: Context) -> View:
    """Return the table of effects, the untried settings, and the chosen settings."""
    body: list[Piece] = [replace(effects(section), gap=False)] if section.effects else []
    if section.untried:
        body += ["", "not tried"]
    by_reason: dict[str, list[str]] = {}
    for untried in section.untried:
        by_reason.setdefault(untried.why, []).append(_name(untried))
    body += [f"  {', '.join(names)}: {why}" for why, names in by_reason.items()]
    return View([Section("search", "", [*body, "", *summary(section)])])


def summary(section: SettingsPlan) -> list[str]:
    """Return lines with the chosen settings and their gain."""
    found = [f"incomplete result: {section.partial}"] if section.partial else []
    if not section.chosen:
        found.append("chosen: the job as found; no setting was proven to help")
    else:
        found.append(f"chosen: {in_words(section.chosen)} ({section.kind})")
    if section.whole:
        found.append(f"  compared with the job as found: {speed(section.whole)}")
    if section.recommended:
        found.append(f"  compared with the recommended threads: {speed(section.recommended)}")
    return found


def explain(section: SettingsPlan, trials: Sequence[Trial]) -> list[str]:
    """Return lines on each setting of the result: meaning, source, and its trials round by
    round."""
    from dltune.plan.settings.space import SPACE

    lines = []
    there = {choice.setting for effect in section.effects for choice in effect.choices}
    there |= {untried.setting for untried in section.untried}
    for setting in SPACE:
        if setting.name not in there:
            continue
        lines.append(f"{setting.name} ({setting.kind}): {setting.what}")
        lines += [f"  helps: {setting.helps}", f"  source: {setting.source}"]
        for trial in trials:
            changed = {*trial.candidate} ^ {*trial.against}
            if any(choice.setting == setting.name for choice in changed):
                why = f": {trial.why}" if trial.why else ""
                ratios = " ".join(f"{ratio:.3f}" for ratio in trial.ratios)
                lines.append(f"  {_said(trial)}{why} [{ratios}]")
        lines += [
            f"  {_name(untried)} was not tried: {untried.why}"
            for untried in section.untried
            if untried.setting == setting.name
        ]
    return lines


def one_trial(trial: Trial) -> str:
    """A trial that has just ended, in a line."""
    import statistics

    over = f", time ratio {statistics.median(trial.ratios):.3f}" if trial.ratios else ""
    return f"{_said(trial)}{over}" + (f" ({terminal.cut(trial.why, _WHY)})" if trial.why else "")


def _name(untried: Untried) -> str:
    return untried.setting + (f"={untried.value}" if untried.value is not None else "")


def _said(trial: Trial) -> str:
    return f"{in_words(trial.candidate)} against {in_words(trial.against)}: {trial.verdict}"


# The live view on stderr

# trials that are shown, the latest
SHOWN = 8


class LiveView:
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
def shown(command: Sequence[str]) -> Iterator[LiveView]:
    """The view for the time of a block."""
    view = LiveView()
    with live(f"tuning {' '.join(command)}", view.summary, view.tables) as refresh:
        view.refresh = refresh
        yield view


def _median(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.3f}" if ratios else "-"
