"""The section on settings, and what came of it, for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dltune.base.formatting import Prose, Table, columns
from dltune.plan.settings.applied import Applied
from dltune.plan.settings.effects import (
    effects,
    in_words,
    picture,
    speed,
)
from dltune.plan.settings.space import by_name
from dltune.schemas.settings import SettingsPlan
from dltune.views import Headline, Piece, Section, View


@dataclass(frozen=True)
class Acted:
    """What one hook has done in one process, as `messages.Setting` tells."""

    pid: int
    setting: str
    value: str
    did: str
    count: int
    left: tuple[str, ...]


def shown(section: SettingsPlan) -> View:
    """The chosen set, each trial's ratio with its interval, and what was not tried."""
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
    """What is applied to a job that is about to start."""
    if applied.choices:
        yield f"settings: {', '.join(map(str, applied.choices))}"
    lossy = [str(c) for c in applied.choices if by_name(c.setting).kind == "lossy"]
    if lossy:
        yield f"lossy settings, which change the job's results: {', '.join(lossy)}"
    yield from (f"setting not applied: {sentence}" for sentence in applied.left)


def sentences(hook: Acted) -> Iterator[str]:
    """What came of a setting in the job's Python."""
    none = " (no effect)" if not hook.count else ""
    yield f"{hook.setting}={hook.value}: {hook.did}{none}"
    yield from (f"  not changed: {sentence}" for sentence in hook.left)
