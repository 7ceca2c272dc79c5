"""The table of predictions: rich in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys

import click

from dltune.documents.plan import Prediction, Threads

HEADER = ("setting", "step", "speed-up", "co-running", "")


def show(section: Threads, *, err: bool) -> None:
    """Print one line per prediction; the chosen one is marked."""
    rows = [_row(section, prediction) for prediction in section.predictions]
    stream = sys.stderr if err else sys.stdout
    if not stream.isatty():
        widths = [max(len(row[i]) for row in (HEADER, *rows)) for i in range(len(HEADER))]
        for row in (HEADER, *rows):
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            click.echo("  ".join(cells).rstrip(), err=err)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in HEADER:
        table.add_column(column, justify="left" if column in ("setting", "") else "right")
    for row in rows:
        table.add_row(*row, style="bold" if row[-1] else "")
    Console(stderr=err).print(table)


def _row(section: Threads, prediction: Prediction) -> tuple[str, ...]:
    chosen = prediction.setting == section.strategy
    return (
        prediction.setting,
        f"{prediction.seconds * 1e3:.1f} ms",
        f"{prediction.speedup:.3f}",
        f"{prediction.corunning:.2f}",
        "planned" if chosen else "",
    )
