"""What a search for settings has found, on stdout."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dltune.documents.sections.settings import Effect, Measured, SettingsPlan, Untried
from dltune.documents.tune import Trial
from dltune.tune.candidate import AS_GIVEN, Candidate, added, told

_ORDER = (
    "helps",
    "no difference seen",
    "not proven",
    "undecided",
    "hurts",
    "no effect",
    "failed",
)
# characters of a reason in the table
_WHY = 60


def show(section: SettingsPlan) -> None:
    """The table of effects, what was not tried, what was chosen."""
    from dltune.cli.tables import table

    effects = sorted(section.effects, key=_rank)
    if effects:
        rows = [_row(effect) for effect in effects]
        heads = ("setting", "beside", "verdict", ">step time", "within", ">rounds", "class", "")
        table("what each setting does to the step time (1 = as without it)", heads, rows)
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
        found.append(f"chosen: {told(section.chosen)} ({section.kind})")
    if section.whole:
        found.append(f"  over the job as given: {_gain(section.whole)}")
    if section.recommended:
        found.append(f"  over TensorFlow's recommendation: {_gain(section.recommended)}")
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
            changed = (*_new(trial), *added(trial.against, trial.candidate))
            if any(choice.setting == setting.name for choice in changed):
                lines.append(f"  {_told_trial(trial)}")
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
    why = f" ({_short(trial.why)})" if trial.why else ""
    return f"{told(trial.candidate)} beside {told(trial.against)}: {trial.verdict}{over}{why}"


def _name(untried: Untried) -> str:
    return untried.setting + (f"={untried.value}" if untried.value is not None else "")


def _told_trial(trial: Trial) -> str:
    ratios = " ".join(f"{ratio:.3f}" for ratio in trial.ratios)
    why = f": {trial.why}" if trial.why else ""
    return f"{told(trial.candidate)} beside {told(trial.against)}: {trial.verdict}{why} [{ratios}]"


def _new(trial: Trial) -> Candidate:
    return added(trial.candidate, trial.against)


def _row(effect: Effect) -> tuple[str, ...]:
    measured = effect.measured
    return (
        told(effect.choices),
        "-" if effect.beside == AS_GIVEN else told(effect.beside),
        effect.verdict,
        f"{measured.ratio:.3f}" if measured else "",
        _within(measured) if measured else "",
        str(measured.rounds) if measured else "",
        effect.kind,
        _short(effect.why),
    )


def _rank(effect: Effect) -> tuple[int, float]:
    return _ORDER.index(effect.verdict), effect.measured.ratio if effect.measured else 0.0


def _within(measured: Measured) -> str:
    low = f"{measured.low:.3f}" if measured.low is not None else "?"
    high = f"{measured.high:.3f}" if measured.high is not None else "?"
    return "" if low == high == "?" else f"{low} to {high}"


def _gain(measured: Measured) -> str:
    within = _within(measured)
    bounds = f", {within} with {measured.confidence * 100:g}%" if within else ""
    return (
        f"{1 / measured.ratio:.2f}x as fast ({measured.ratio:.3f} of the step time{bounds}, "
        f"{measured.rounds} rounds)"
    )


def _short(why: str) -> str:
    return why if len(why) <= _WHY else why[: _WHY - 1] + "…"
