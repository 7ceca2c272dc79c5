"""Tables of results on stdout: rich on a terminal, plain aligned lines elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.documents.profile import Op, Profile

if TYPE_CHECKING:
    from dltune.analysis.figures import Figures

# thread counts shown of an op's curve
CURVE = 4
# columns of a table that is not on a terminal, and the least for an op's key
WIDTH, KEY = 120, 24


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; a column whose head begins with ">" is aligned to the right."""
    heads = [column.lstrip(">") for column in columns]
    right = [column.startswith(">") for column in columns]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        drawn = Table(title=title, title_justify="left")
        for head, flush in zip(heads, right, strict=True):
            drawn.add_column(head, justify="right" if flush else "left", overflow="ellipsis")
        for row in rows:
            drawn.add_row(*(Text(cell) for cell in row))
        Console().print(drawn)
        return
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    click.echo(title)
    for row in [heads, *rows]:
        cells = [
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def show_profile(profile: Profile, path: Path, top: int) -> None:
    """What a person wants to know of a fresh profile, and what to do with it."""
    describe(profile, top)
    click.echo(f"\nwritten to {path}; next: dltune plan {path}")


def describe(profile: Profile, top: int) -> None:
    """The steps and where their time goes, the ops that take the time, and why they do."""
    from dltune.analysis import derived
    from dltune.analysis.advice import advice_of
    from dltune.analysis.figures import analyse
    from dltune.analysis.why import attack, why

    for step in profile.steps:
        name = step.name or step.signature
        click.echo(
            f"step {name}: {step.wall.median * 1e3:.1f} ms (spread {step.wall.spread:.0%}) under "
            f"the job's own settings, {sum(n.repeats for n in step.nodes):.0f} ops, "
            f"{step.executions} executions"
        )
        if step.parts:
            click.echo(f"  {derived.parts(step)}")
        if advice := attack(step):
            click.echo(f"  {advice}")
    click.echo(
        f"TensorFlow {profile.framework.version}, intra-op {profile.settings.intra}, "
        f"inter-op {profile.settings.inter}; {len(profile.machine.cores)} cores: "
        f"{profile.machine.name}"
    )
    if profile.memory:
        live, peak = profile.memory.live / 2**20, profile.memory.peak / 2**20
        click.echo(f"tensors: {live:.0f} MiB live between steps, {peak:.0f} MiB at the peak")
    analysis = analyse(profile)
    heavy = analysis.top(top)
    _ops_table(
        "\nops by time on one thread",
        (">runs", ">share", ">1 thread ms", "best threads", ">gain", "ms by threads"),
        [figures.op for figures in heavy],
        [_times(figures) for figures in heavy],
    )
    heads, rows = derived.columns(heavy)
    if heads:
        _ops_table("\nthese ops at their best threads", heads, [f.op for f in heavy], rows)
        for line in (*derived.ceilings(analysis.roofline), derived.scaled(heavy)):
            if line:
                click.echo(line)
    if heavy:
        click.echo("\nwhy they take their time")
    for figures in heavy:
        click.echo(f"  {_cut(figures.op.key, _columns() - 2)}")
        click.echo(f"      {why(figures, analysis)[1]}")
    if profile.counters:
        click.echo(f"\ncounters ({profile.counters.asked}): {profile.counters.why}")
        if profile.counters.totals:
            table("\nwhere the events happened", *derived.totals(profile.counters.totals))
        if profile.counters.overhead:
            click.echo(derived.overhead(profile.counters.overhead))
    found = advice_of(analysis)
    if found:
        click.echo("\nwhat the settings around the ops may gain (dltune tune measures it)")
    for one in found:
        click.echo(f"  {', '.join(one.settings)}")
        click.echo(f"      {one}")
    for note in profile.notes:
        click.echo(f"\nnote: {note}")
    if profile.partial:
        click.echo(f"\nthis profile is partial: {profile.partial}")


def _ops_table(
    title: str, columns: Sequence[str], ops: Sequence[Op], rows: Sequence[Sequence[str]]
) -> None:
    """A table whose first column, the ops' keys, takes what the others leave of the width."""
    heads = [column.lstrip(">") for column in columns]
    widths = [max(len(cell) for cell in cells) for cells in zip(heads, *rows, strict=True)]
    between = 3 if sys.stdout.isatty() else 2
    left = _columns() - sum(widths) - between * (len(widths) + 1)
    table(
        title,
        ("op", *columns),
        [(_cut(op.key, max(left, KEY)), *row) for op, row in zip(ops, rows, strict=True)],
    )


def _times(figures: Figures) -> tuple[str, ...]:
    assert figures.best is not None
    best = figures.best.time
    one = next((t for t in figures.op.times if t.threads == 1), best)
    return (
        str(figures.op.count),
        f"{figures.share:.1%}",
        f"{one.median * 1e3:.3f}",
        f"{best.threads} {best.placement}",
        f"{one.median / best.median:.2f}x" if best.median > 0 else "",
        _curve(figures.op),
    )


def _curve(op: Op) -> str:
    """Milliseconds at thread counts in their better placement: `CURVE` counts at most."""
    best: dict[int, float] = {}
    for time in op.times:
        best[time.threads] = min(time.median, best.get(time.threads, time.median))
    counts = sorted(best)
    if len(counts) > CURVE:
        last = len(counts) - 1
        counts = [counts[round(i * last / (CURVE - 1))] for i in range(CURVE)]
    return "  ".join(f"{count}: {best[count] * 1e3:.3g}" for count in counts)


def _columns() -> int:
    """Of the terminal; elsewhere, of what is commonly read."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
