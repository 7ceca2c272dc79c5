"""Tables of results on stdout: rich on a terminal, plain aligned lines elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from dltune.documents.profile import Op, Profile
from dltune.tables import Bar, Cell, Figure, Key, Prose, Table, columns
from dltune.visible import visible

if TYPE_CHECKING:
    from dltune.analysis.figures import Figures

# thread counts shown of an op's curve
CURVE = 4
# columns of a table that is not on a terminal, and the least for an op's key
WIDTH, KEY = 120, 24
# characters at most: of a sentence in a cell, and of what any cell or title says
PROSE, LONGEST = 60, 4000


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; a column whose head begins with ">" is aligned to the right."""
    show(Table(title, columns(*heads), rows), gap=False)


def show(table: Table, most: int | None = None, *, gap: bool = True) -> None:
    """Print a table, `most` rows of it at most, without the columns that are for a page. `gap`: an
    empty line before it."""
    kept = [
        index
        for index, column in enumerate(table.columns)
        if not column.page and not any(_drawn(row[index]) for row in table.rows)
    ]
    shown = [table.columns[index] for index in kept]
    rows = [[row[index] for index in kept] for row in table.rows[:most]]
    title = "\n".join(visible(line, LONGEST) for line in table.title.split("\n"))
    if len(rows) < len(table.rows):
        title += f", {len(rows)} of {len(table.rows)}"
    if gap:
        click.echo("")
    texts = _texts([column.head for column in shown], rows)
    if sys.stdout.isatty():
        from rich import table as rich
        from rich.console import Console
        from rich.text import Text

        drawn = rich.Table(title=title, title_justify="left")
        for column in shown:
            align: Literal["left", "right"] = "right" if column.right else "left"
            drawn.add_column(column.head, justify=align, overflow="ellipsis")
        for line in texts[1:]:
            drawn.add_row(*map(Text, line))
        Console().print(drawn)
        return
    widths = [max(map(len, cells)) for cells in zip(*texts, strict=True)]
    click.echo(title)
    for line in texts:
        cells = [
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, shown, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def _drawn(cell: Cell) -> bool:
    return isinstance(cell, Bar) or hasattr(cell, "__html__")


def _texts(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[list[str]]:
    """The lines of a table, its heads first; keys take what the rest leaves of the width."""
    keys = [any(isinstance(row[i], Key) for row in rows) for i in range(len(heads))]
    lines = [list(heads), *([_text(cell) for cell in row] for row in rows)]
    if any(keys):
        between = 3 if sys.stdout.isatty() else 2
        rest = [i for i, key in enumerate(keys) if not key]
        taken = sum(max(len(line[i]) for line in lines) for i in rest) + between * len(keys)
        width = max(KEY, (_columns() - taken) // keys.count(True))
        for line, row in zip(lines[1:], rows, strict=True):
            for i, cell in enumerate(row):
                if isinstance(cell, Key):
                    line[i] = _cut(line[i], width, end=cell.end)
    return lines


def _text(cell: Cell) -> str:
    if isinstance(cell, Prose):
        return _cut(visible(cell.text, LONGEST), PROSE)
    if isinstance(cell, (Key, Figure)):
        cell = cell.text
    return visible(cell, LONGEST) if isinstance(cell, str) else ""


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
    heads: Sequence[str]
    rows: list[tuple[Cell, ...]]
    heads = ("op", ">runs", ">share", ">1 thread ms", "best threads", ">gain", "ms by threads")
    rows = [(Key(figures.op.key), *_times(figures)) for figures in heavy]
    show(Table("ops by time on one thread", columns(*heads), rows))
    heads, cells = derived.columns(heavy)
    if heads:
        rows = [(Key(of.op.key), *row) for of, row in zip(heavy, cells, strict=True)]
        show(Table("these ops at their best threads", columns("op", *heads), rows))
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


def _cut(text: str, width: int, *, end: bool = False) -> str:
    """`end`: keep this, not the beginning."""
    if len(text) <= width:
        return text
    return "…" + text[1 - width :] if end else text[: width - 1] + "…"
