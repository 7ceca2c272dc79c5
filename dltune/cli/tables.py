"""Tables of results on stdout: rich on a terminal, plain aligned lines elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from dltune.documents.profile import Op, OpTime, Profile

# thread counts shown of an op's curve
CURVE = 6


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
    """What a person wants to know of a fresh profile: the steps, and the ops that take the time."""
    for step in profile.steps:
        name = step.name or step.signature
        click.echo(
            f"step {name}: {step.wall.median * 1e3:.1f} ms (spread {step.wall.spread:.0%}) under "
            f"the job's own settings, {sum(n.repeats for n in step.nodes):.0f} ops, "
            f"{step.executions} executions"
        )
    click.echo(
        f"TensorFlow {profile.tensorflow.version}, intra-op {profile.settings.intra}, "
        f"inter-op {profile.settings.inter}; {len(profile.machine.cores)} cores: "
        f"{profile.machine.name}"
    )
    if profile.memory:
        live, peak = profile.memory.live / 2**20, profile.memory.peak / 2**20
        click.echo(f"tensors: {live:.0f} MiB live between steps, {peak:.0f} MiB at the peak")
    heavy = sorted(profile.ops, key=_one_thread_total, reverse=True)
    whole = sum(map(_one_thread_total, profile.ops)) or 1.0
    rows = []
    for op in [op for op in heavy if op.times][:top]:
        best = min(op.times, key=lambda t: t.median)
        one = _at_one(op) or best
        rows.append(
            (
                _short(op),
                str(op.count),
                f"{_one_thread_total(op) / whole:.1%}",
                f"{one.median * 1e3:.3f}",
                f"{best.threads} {best.placement}",
                f"{one.median / best.median:.2f}x",
                _curve(op),
            )
        )
    table(
        "\nops by time on one thread",
        ("op", ">runs", ">share", ">1 thread ms", "best threads", ">gain", "ms by threads"),
        rows,
    )
    for note in profile.notes:
        click.echo(f"\nnote: {note}")
    if profile.partial:
        click.echo(f"\nthis profile is partial: {profile.partial}")
    click.echo(f"\nwritten to {path}; next: dltune plan {path}")


def _curve(op: Op) -> str:
    """Milliseconds at each thread count in its better placement; at most `CURVE` counts."""
    best: dict[int, float] = {}
    for time in op.times:
        best[time.threads] = min(time.median, best.get(time.threads, time.median))
    counts = sorted(best)
    if len(counts) > CURVE:
        last = len(counts) - 1
        counts = [counts[round(i * last / (CURVE - 1))] for i in range(CURVE)]
    return "  ".join(f"{count}: {best[count] * 1e3:.3g}" for count in counts)


def _at_one(op: Op) -> OpTime | None:
    return next((t for t in op.times if t.threads == 1), None)


def _one_thread_total(op: Op) -> float:
    one = _at_one(op)
    return one.median * op.count if one else 0.0


def _short(op: Op) -> str:
    narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < 160
    width = 48 if narrow else 90
    text = op.key
    return text if len(text) <= width else text[: width - 1] + "…"
