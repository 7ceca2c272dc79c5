"""Two bench results, setting by setting."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

import msgspec

from dltune.compare.change import (
    Change,
    Difference,
    Verdict,
    differences,
    machine_facts,
    require_measured,
)
from dltune.schemas.bench import Bench, Setting, load
from dltune.stats import relative_spread, unpaired_ratio


class SettingChange(msgspec.Struct, frozen=True):
    """A setting in both benches.

    `change`: of its step, in seconds, from the medians of its turns. `relative`: of its ratio to
    the reference of the same round, in which the machine's drift between the two benches cancels
    out; None for the reference itself, and where a bench has other references. Both intervals hold
    with 95 %. `spread_a` and `spread_b`: half the interquartile range of turns over their median.
    """

    name: str
    pools_a: str
    pools_b: str
    change: Change
    verdict: Verdict
    relative: Change | None
    relative_verdict: Verdict | None
    spread_a: float
    spread_b: float
    rounds_a: int
    rounds_b: int


class Comparison(msgspec.Struct, frozen=True):
    """`settings`: the largest change first. `appeared` and `went`: settings measured in one only.
    `reference` is None when the two benches have different ones."""

    circumstances: tuple[Difference, ...]
    reference: str | None
    settings: tuple[SettingChange, ...]
    appeared: tuple[str, ...]
    went: tuple[str, ...]


def compare_files(*paths: Path) -> Comparison:
    results = [load(path) for path in paths]
    for path, result in zip(paths, results, strict=True):
        require_measured(path, any(setting.turns for setting in result.settings), result.partial)
    return compare(*results)


def compare(a: Bench, b: Bench) -> Comparison:
    in_a, in_b = ({s.name: s for s in bench.settings if s.turns} for bench in (a, b))
    reference = a.reference if a.reference == b.reference else None
    if reference not in in_a or reference not in in_b:
        reference = None
    found = [_setting(in_a, in_b, name, reference) for name in in_a if name in in_b]
    return Comparison(
        circumstances=differences(_facts(a), _facts(b)),
        reference=reference,
        settings=tuple(sorted(found, key=lambda s: -abs(s.change.seconds))),
        appeared=tuple(name for name in in_b if name not in in_a),
        went=tuple(name for name in in_a if name not in in_b),
    )


def _facts(bench: Bench) -> dict[str, object]:
    return {
        **machine_facts(bench.machine),
        "framework": bench.framework.title,
        "dltune": bench.dltune,
        "command": " ".join(bench.command),
        "plan": bench.plan[:16],
        "strategy of the plan": bench.strategy,
        "reference": bench.reference,
        "incomplete because": bench.partial,
    }


def _setting(
    in_a: Mapping[str, Setting], in_b: Mapping[str, Setting], name: str, reference: str | None
) -> SettingChange:
    a, b = _turns(in_a[name]), _turns(in_b[name])
    change = _change(list(a.values()), list(b.values()))
    relative = None
    if reference is not None and name != reference:
        over_a, over_b = _over(a, _turns(in_a[reference])), _over(b, _turns(in_b[reference]))
        if over_a and over_b:
            relative = _change(over_a, over_b)
    return SettingChange(
        name=name,
        pools_a=f"{in_a[name].intra}x{in_a[name].inter}",
        pools_b=f"{in_b[name].intra}x{in_b[name].inter}",
        change=change,
        verdict=change.verdict,
        relative=relative,
        relative_verdict=relative.verdict if relative else None,
        spread_a=relative_spread(list(a.values())),
        spread_b=relative_spread(list(b.values())),
        rounds_a=len(a),
        rounds_b=len(b),
    )


def _turns(setting: Setting) -> dict[int, float]:
    """By round the median step of the turn, in seconds."""
    return {turn.round: turn.median for turn in setting.turns}


def _over(times: Mapping[int, float], reference: Mapping[int, float]) -> list[float]:
    return [times[round_] / reference[round_] for round_ in times if round_ in reference]


def _change(a: list[float], b: list[float]) -> Change:
    found = unpaired_ratio(a, b)
    return Change(statistics.median(a), statistics.median(b), found.median, *found.bounds)
