"""The settings around the ops: what each did, what was chosen, what was not tried."""

from __future__ import annotations

from collections.abc import Mapping

from dltune.documents.sections.settings import Effect, Measured, SettingsPlan, Verdict
from dltune.report.charts.forest import Row, forest
from dltune.report.markup import Markup, joined, tag
from dltune.report.table import html
from dltune.tables import Prose, Table, columns
from dltune.tune.candidate import told
from dltune.tune.effects import effects, interval

__all__ = ["interval", "settings", "told", "untried"]

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
        body.append(html(effects(section), f"{prefix}-settings-table"))
    return joined(body)


def untried(section: SettingsPlan, prefix: str) -> Markup:
    rows = [(one.setting, one.value or "any", Prose(one.why)) for one in section.untried]
    title = "settings, and values of them, that were not tried"
    table = Table(title, columns("setting", "value", "why"), rows)
    return html(table, f"{prefix}-untried-table")


def _name(effect: Effect) -> str:
    changed = {choice.setting for choice in effect.choices}
    beside = tuple(choice for choice in effect.beside if choice.setting not in changed)
    return told(effect.choices) + (f", beside {told(beside)}" if beside else "")


def _figures(verdict: Verdict | None, found: Measured | None) -> str:
    said: list[str] = [verdict] if verdict else []
    if found:
        said.append(f"{found.ratio:.3f} ({interval(found)})")
    return " ".join(said)
