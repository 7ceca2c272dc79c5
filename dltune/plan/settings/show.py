"""The section on settings and its effects, as text, tables and charts for users.

`shown` presents the section, with the effect of each setting on the step time as a table for a
terminal (`effects`) and as a chart for a page (`picture`). `announced` and `sentences` report what
one job receives, and what came of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dltune.base.formatting import Cell, Prose, Ratio, Ratios, Table, columns
from dltune.plan.settings.choices import Applied
from dltune.plan.settings.space import by_name
from dltune.schemas.settings import Choice, Effect, Measured, SettingsPlan, Verdict
from dltune.views import Headline, Piece, Section, View

# Effects of settings on the step time

# verdicts in the order of the table, and the style of each in the chart
_STYLES: Mapping[Verdict, str] = {
    "helps": "helps",
    "no difference seen": "same",
    "not proven": "open",
    "undecided": "open",
    "hurts": "hurts",
    "no effect": "open",
    "failed": "open",
}


def in_words(choices: Sequence[Choice]) -> str:
    """Return the choices as text; without choices, the job as found."""
    return ", ".join(map(str, choices)) or "the job as found"


def speed(found: Measured) -> str:
    """Return the gain as text."""
    bounds = interval(found)
    if found.low is not None or found.high is not None:
        bounds = f"{found.confidence * 100:g} % interval {bounds}"
    return (
        f"{1 / found.ratio:.2f}x as fast (time ratio {found.ratio:.3f}, {bounds}, "
        f"{found.rounds} rounds)"
    )


def effects(section: SettingsPlan) -> Table:
    """Return a table of the effects: by verdict, helpful settings first, then by time."""
    heads = (
        "setting",
        "with",
        "verdict",
        ">time ratio",
        "confidence interval",
        ">rounds",
        "class",
        "why",
    )
    title = "time ratio: step time with the setting divided by without it; below 1 is faster"
    return Table(title, columns(*heads), [_row(one) for one in sorted(section.effects, key=_rank)])


def interval(found: Measured) -> str:
    """Return both ends of the interval, or that there are too few rounds for an interval."""
    if found.low is None and found.high is None:
        return "too few rounds for an interval"
    low = "0" if found.low is None else f"{found.low:.3f}"
    high = "∞" if found.high is None else f"{found.high:.3f}"
    return f"{low} to {high}"


def _row(effect: Effect) -> tuple[Cell, ...]:
    found = effect.measured
    return (
        in_words(effect.choices),
        in_words(effect.beside) if effect.beside else "-",
        effect.verdict,
        f"{found.ratio:.3f}" if found else "",
        f"{interval(found)} ({found.confidence * 100:g} %)" if found else "",
        str(found.rounds) if found else "",
        effect.kind,
        Prose(effect.why),
    )


def _rank(effect: Effect) -> tuple[int, float]:
    return list(_STYLES).index(effect.verdict), effect.measured.ratio if effect.measured else 0.0


def picture(section: SettingsPlan) -> Ratios:
    """Return a chart with the ratio and interval of every trial and of the whole chosen set."""
    rows = [
        _ratio(_name(effect), effect.verdict, _STYLES[effect.verdict], effect.measured)
        for effect in section.effects
    ]
    if section.whole:
        rows.append(_ratio("all that was chosen", None, "chosen", section.whole))
    if found := section.recommended:
        rows.append(
            _ratio("all that was chosen, against the recommended threads", None, "chosen", found)
        )
    return Ratios(rows, "faster", "slower")


def _ratio(name: str, verdict: Verdict | None, style: str, found: Measured | None) -> Ratio:
    said: list[str] = [verdict] if verdict else []
    if found is None:
        return Ratio(name, " ".join(said), style, None)
    said.append(f"{found.ratio:.3f} ({interval(found)})")
    return Ratio(name, " ".join(said), style, found.ratio, found.low, found.high)


def _name(effect: Effect) -> str:
    changed = {choice.setting for choice in effect.choices}
    beside = tuple(choice for choice in effect.beside if choice.setting not in changed)
    return in_words(effect.choices) + (f", with {in_words(beside)}" if beside else "")


# The section, and its effects in one job


@dataclass(frozen=True)
class Acted:
    """Result of a hook in one process, as `protocol.Setting` reports it."""

    pid: int
    setting: str
    value: str
    did: str
    count: int
    left: tuple[str, ...]


def shown(section: SettingsPlan) -> View:
    """Return the chosen set, each trial's ratio with its interval, and the untried settings."""
    body: list[Piece] = [f"Chosen: {in_words(section.chosen)} ({section.kind})."]
    if section.partial:
        body.append(f"The search is incomplete: {section.partial}.")
    drawing = picture(section)
    if drawing.rows:
        body += [drawing, effects(section)]
    sections = [Section("settings", "Settings of the job", body)]
    if section.untried:
        rows = [(one.setting, one.value or "any", Prose(one.why)) for one in section.untried]
        title = "settings and values that were not tried"
        table = Table(title, columns("setting", "value", "why"), rows)
        sections.append(Section("untried", "Not tried", [table]))
    return View(sections, [_headline(section)])


def _headline(section: SettingsPlan) -> Headline:
    found = section.whole
    if not section.chosen:
        return Headline(1, "No setting was proven to make the job faster.")
    if found is None:
        chosen = in_words(section.chosen)
        return Headline(0, f"Chosen: {chosen}; the total gain was not measured.")
    sentence = (
        f"Compared with the job as found, the job with {in_words(section.chosen)} is "
        f"{speed(found)}."
    )
    if better := section.recommended:
        sentence += (
            f" Compared with the recommended threads, it is {1 / better.ratio:.2f}x as fast."
        )
    return Headline(0, sentence)


def announced(applied: Applied) -> Iterator[str]:
    """Yield the settings that are applied to a job that is about to start."""
    if applied.choices:
        yield f"settings: {', '.join(map(str, applied.choices))}"
    lossy = [str(c) for c in applied.choices if by_name(c.setting).kind == "lossy"]
    if lossy:
        yield f"lossy settings, which change the job's results: {', '.join(lossy)}"
    yield from (f"setting not applied: {sentence}" for sentence in applied.left)


def sentences(hook: Acted) -> Iterator[str]:
    """Yield the result of a setting in the job's Python."""
    none = " (no effect)" if not hook.count else ""
    yield f"{hook.setting}={hook.value}: {hook.did}{none}"
    yield from (f"  not changed: {sentence}" for sentence in hook.left)
