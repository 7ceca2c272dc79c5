"""What a search for settings has found, on stdout."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dltune.cli import tables
from dltune.documents.sections.settings import Measured, SettingsPlan, Untried
from dltune.documents.tune import Trial
from dltune.planners.settings.effects import effects, in_words, interval

# characters of a reason in a line
_WHY = 60


def show(section: SettingsPlan) -> None:
    """The table of effects, what was not tried, what was chosen."""
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
    """What was chosen and what it gains."""
    found = [f"this result is partial: {section.partial}"] if section.partial else []
    if not section.chosen:
        found.append("chosen: the job as it was given; nothing was found to help for certain")
    else:
        found.append(f"chosen: {in_words(section.chosen)} ({section.kind})")
    if section.whole:
        found.append(f"  over the job as given: {_gain(section.whole)}")
    if section.recommended:
        found.append(f"  over the recommended threads: {_gain(section.recommended)}")
    return found


def explain(section: SettingsPlan, trials: Sequence[Trial]) -> list[str]:
    """What each setting of the result is, where it is known from, and its trials round by round."""
    from dltune.planners.settings.space import SPACE

    lines = []
    there = {choice.setting for effect in section.effects for choice in effect.choices}
    there |= {untried.setting for untried in section.untried}
    for setting in SPACE:
        if setting.name not in there:
            continue
        lines.append(f"{setting.name} ({setting.kind}): {setting.what}")
        lines.append(f"  known from: {setting.source}")
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

    over = f", {statistics.median(trial.ratios):.3f} of the time" if trial.ratios else ""
    return f"{_said(trial)}{over}" + (f" ({tables.cut(trial.why, _WHY)})" if trial.why else "")


def _name(untried: Untried) -> str:
    return untried.setting + (f"={untried.value}" if untried.value is not None else "")


def _said(trial: Trial) -> str:
    return f"{in_words(trial.candidate)} beside {in_words(trial.against)}: {trial.verdict}"


def _gain(measured: Measured) -> str:
    bounds = interval(measured)
    if measured.low is not None or measured.high is not None:
        bounds += f" with {measured.confidence * 100:g}%"
    return (
        f"{1 / measured.ratio:.2f}x as fast ({measured.ratio:.3f} of the step time, {bounds}, "
        f"{measured.rounds} rounds)"
    )
