"""Print the result of a search for settings on stdout."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dltune.cli import tables
from dltune.plan.settings.effects import effects, in_words, speed
from dltune.schemas.bench import Trial
from dltune.schemas.settings import SettingsPlan, Untried

# characters of a reason in a line
_WHY = 60


def show(section: SettingsPlan) -> None:
    """Print the table of effects, the untried settings, and the chosen settings."""
    if section.effects:
        tables.show(effects(section), gap=False)
    if section.untried:
        click.echo("\nnot tried")
    by_reason: dict[str, list[str]] = {}
    for untried in section.untried:
        by_reason.setdefault(untried.why, []).append(_name(untried))
    for why, names in by_reason.items():
        click.echo(f"  {', '.join(names)}: {why}")
    click.echo("")
    for line in summary(section):
        click.echo(line)


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
    return f"{_said(trial)}{over}" + (f" ({tables.cut(trial.why, _WHY)})" if trial.why else "")


def _name(untried: Untried) -> str:
    return untried.setting + (f"={untried.value}" if untried.value is not None else "")


def _said(trial: Trial) -> str:
    return f"{in_words(trial.candidate)} against {in_words(trial.against)}: {trial.verdict}"
