"""What each setting did to the step time, as a table for a terminal and for a page."""

from __future__ import annotations

from dltune.documents.sections.settings import Effect, Measured, SettingsPlan, Verdict
from dltune.tables import Cell, Prose, Table, columns
from dltune.tune.candidate import told

# verdicts in the order of the table
_ORDER: tuple[Verdict, ...] = (
    "helps",
    "no difference seen",
    "not proven",
    "undecided",
    "hurts",
    "no effect",
    "failed",
)


def effects(section: SettingsPlan) -> Table:
    """What helps first, and of one verdict what is fastest."""
    heads = ("setting", "beside", "verdict", ">ratio", "interval", ">rounds", "kind", "why")
    title = "step times over those of the job without it, in the same rounds: below 1 is faster"
    return Table(title, columns(*heads), [_row(one) for one in sorted(section.effects, key=_rank)])


def interval(found: Measured) -> str:
    """Both ends, or that there are too few rounds for them."""
    if found.low is None and found.high is None:
        return "too few rounds for an interval"
    low = "0" if found.low is None else f"{found.low:.3f}"
    return f"{low} to {'∞' if found.high is None else f'{found.high:.3f}'}"


def _row(effect: Effect) -> tuple[Cell, ...]:
    found = effect.measured
    return (
        told(effect.choices),
        told(effect.beside) if effect.beside else "-",
        effect.verdict,
        f"{found.ratio:.3f}" if found else "",
        f"{found.confidence:.1%}: {interval(found)}" if found else "",
        str(found.rounds) if found else "",
        effect.kind,
        Prose(effect.why),
    )


def _rank(effect: Effect) -> tuple[int, float]:
    return _ORDER.index(effect.verdict), effect.measured.ratio if effect.measured else 0.0
