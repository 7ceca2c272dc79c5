"""The settings around the ops: what each did, what was chosen, what was not tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dltune.documents.sections.settings import Choice, Effect, Measured, SettingsPlan, Verdict
from dltune.report.charts.forest import Row, forest
from dltune.report.markup import Markup, joined, short, tag
from dltune.report.table import table

# how a verdict is drawn; each stands as text beside its row too
STYLES: Mapping[Verdict, str] = {
    "helps": "helps",
    "hurts": "hurts",
    "not proven": "open",
    "no difference seen": "same",
    "undecided": "open",
    "failed": "open",
    "no effect": "open",
}
GIVEN = "the job as given"


def settings(section: SettingsPlan, prefix: str) -> Markup:
    """The chosen set, every trial's ratio with its interval as a picture, and as a table."""
    body = [tag("p", f"Chosen: {told(section.chosen)} ({section.kind}).")]
    if section.partial:
        body.append(tag("p", f"This search is partial: {section.partial}.", class_="remark"))
    rows = [
        Row(
            name=_name(effect),
            text=_figures(effect.verdict, effect.measured),
            style=STYLES[effect.verdict],
            ratio=effect.measured.ratio if effect.measured else None,
            low=effect.measured.low if effect.measured else None,
            high=effect.measured.high if effect.measured else None,
        )
        for effect in section.effects
    ]
    for name, found in (
        ("all that was chosen", section.whole),
        ("the same over TensorFlow's recommendation", section.recommended),
    ):
        if found:
            text = _figures(None, found)
            rows.append(Row(name, text, "chosen", found.ratio, found.low, found.high))
    if rows:
        body.append(forest(rows, "faster", "slower"))
        body.append(_table(section.effects, prefix))
    return joined(body)


def untried(section: SettingsPlan, prefix: str) -> Markup:
    rows = [(short(one.setting), short(one.value or "any"), one.why) for one in section.untried]
    caption = "Settings, and values of them, that were not tried"
    return table(f"{prefix}-untried-table", caption, ("setting", "value", "why"), rows)


def told(choices: Sequence[Choice]) -> str:
    return ", ".join(f"{short(c.setting)}={short(c.value)}" for c in choices) or GIVEN


def interval(found: Measured) -> str:
    """Both ends, or that there are too few rounds for them."""
    if found.low is None and found.high is None:
        return "too few rounds for an interval"
    low = "0" if found.low is None else f"{found.low:.3f}"
    return f"{low} to {'∞' if found.high is None else f'{found.high:.3f}'}"


def _name(effect: Effect) -> str:
    gone = [c for c in effect.beside if c.setting in {x.setting for x in effect.choices}]
    beside = [c for c in effect.beside if c not in gone]
    return told(effect.choices) + (f", beside {told(beside)}" if beside else "")


def _figures(verdict: Verdict | None, found: Measured | None) -> str:
    said: list[str] = [verdict] if verdict else []
    if found:
        said.append(f"{found.ratio:.3f} ({interval(found)})")
    return " ".join(said)


def _table(effects: Sequence[Effect], prefix: str) -> Markup:
    rows = [
        (
            told(effect.choices),
            told(effect.beside),
            effect.verdict,
            f"{effect.measured.ratio:.3f}" if effect.measured else "",
            f"{effect.measured.confidence:.1%}: {interval(effect.measured)}"
            if effect.measured
            else "",
            str(effect.measured.rounds) if effect.measured else "",
            effect.kind,
            tag("span", effect.why, class_="why"),
        )
        for effect in effects
    ]
    heads = ("setting", "beside", "verdict", ">ratio", "interval", ">rounds", "kind", "why")
    caption = "Step times over those of the job without it, in the same rounds: below 1 is faster"
    return table(f"{prefix}-settings-table", caption, heads, rows)
