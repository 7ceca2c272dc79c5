"""The tables of a bench: measured and predicted times, and the cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from dltune.analysis.op_causes import FAULT_SECONDS
from dltune.base.formatting import Table, columns
from dltune.bench.settings import AS_FOUND
from dltune.schemas.bench import Bench, Setting

NONE = "-"
# share of a step: a difference in page faults that takes as much is reported
CHANCE = 0.01


def measured(bench: Bench) -> list[Setting]:
    """The settings that had turns enough for a summary."""
    return [setting for setting in bench.settings if setting.summary]


def times(bench: Bench) -> Table:
    """Raises StopIteration for a bench without its reference."""
    reference = next(s for s in bench.settings if s.name == bench.reference)
    rounds = min(len(setting.turns) for setting in measured(bench))
    title = f"{rounds} round{'s' * (rounds > 1)}; threads are intra-op x inter-op"
    heads = [
        *("setting", ">threads", ">step ms", ">spread", ">ratio", ">95 % interval"),
        *(">predicted ms", ">predicted ratio"),
    ]
    rows = [_times(s, reference) for s in measured(bench)]
    if any(found := [scheduling(s) for s in measured(bench)]):
        title += "; E: overlap of transfers with ops, 1 is the maximum"
        heads.append(">E")
        rows = [
            (*row, f"{statistics.median(each):.2f}" if each else NONE)
            for row, each in zip(rows, found, strict=True)
        ]
    return Table(title, columns(*heads), rows, name="bench-table", gap=False)


def scheduling(setting: Setting) -> list[float]:
    """E of each of its steps."""
    return [one for turn in setting.turns for one in turn.scheduling]


def costs(bench: Bench) -> Table:
    """A step's; efficiency is there when one core was measured."""
    heads = ("setting", ">efficiency", ">CPU s", ">voluntary", ">involuntary", ">page faults")
    title = "CPU time, context switches and page faults are per step"
    found = [heads, *map(_costs, measured(bench))]
    if any(s.summary and s.summary.efficiency for s in bench.settings):
        title = f"efficiency is T(1 core) / ({len(bench.machine.cores)} x T); {title}"
    else:
        found = [(name, *rest) for name, _, *rest in found]
    if all(_faults(setting) is None for setting in bench.settings):
        found = [tuple(rest) for *rest, _ in found]
    return Table(title, columns(*found[0]), found[1:], name="costs-table")


def _times(setting: Setting, reference: Setting) -> tuple[str, ...]:
    found = setting.summary
    assert found is not None
    ratio = found.ratio
    predicted = setting.predicted
    expected = predicted / reference.predicted if predicted and reference.predicted else None
    return (
        setting.name,
        f"{setting.intra}x{setting.inter}",
        f"{found.step.median * 1e3:.2f}",
        f"{found.step.spread:.1%}",
        f"{ratio.median:.3f}" if ratio else "1" if setting is reference else NONE,
        f"{ratio.low:.3f} to {ratio.high:.3f}" if ratio else NONE,
        NONE if predicted is None else f"{predicted * 1e3:.2f}",
        NONE if expected is None else f"{expected:.3f}",
    )


def _costs(setting: Setting) -> tuple[str, ...]:
    found = setting.summary
    assert found is not None
    return (
        setting.name,
        NONE if found.efficiency is None else f"{found.efficiency:.3f}",
        f"{found.cpu_seconds:.3g}",
        f"{found.voluntary:.0f}",
        f"{found.involuntary:.0f}",
        NONE if (faults := _faults(setting)) is None else f"{faults:.0f}",
    )


def _faults(setting: Setting) -> float | None:
    """Page faults of a step, the median of its turns; None where they were not read."""
    read = [turn.faults for turn in setting.turns if turn.faults is not None]
    return statistics.median(read) if read else None


def speed_up(setting: Setting, bench: Bench) -> str:
    """Return how much faster a setting is than the reference; empty for the reference itself."""
    ratio = setting.summary and setting.summary.ratio
    if not ratio:
        return ""
    reference = "found" if bench.reference == AS_FOUND else bench.reference
    return (
        f"{setting.name}: {1 / ratio.median:.2f}x as fast as {reference} "
        f"({ratio.confidence:.0%} interval {1 / ratio.high:.2f} to {1 / ratio.low:.2f})"
    )


def by_chance(bench: Bench) -> Iterator[str]:
    """Yield differences of settings caused by the memory layout of their jobs: an allocator that
    returns memory to the system and takes it again in the next step does so in one process and not
    in another. A sentence for each that differs so from the reference."""
    reference = next(s for s in bench.settings if s.name == bench.reference)
    if (usual := _faults(reference)) is None:
        return
    for setting in measured(bench):
        faults, step = _faults(setting), setting.summary.step.median if setting.summary else 0.0
        if setting is reference or faults is None or setting.choices != reference.choices:
            continue
        more = abs(faults - usual)
        least = FAULT_SECONDS * more
        if least >= CHANCE * step:
            yield (
                f"{setting.name} has {more:,.0f} {'more' if faults > usual else 'fewer'} "
                f"page faults per step than {reference.name}; they take at least "
                f"{least * 1e3:.2g} ms. They can differ between two processes under one setting; "
                "an allocator that keeps its memory avoids them (dltune tune --only allocator)"
            )
