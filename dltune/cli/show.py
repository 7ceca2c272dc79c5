"""`dltune show`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dltune.errors import UsageError


@click.command("show")
@click.option("--top", type=click.IntRange(min=1), help="Ops shown [default: 12; --json: all].")
@click.option("--json", "as_json", is_flag=True, help="Print the derived figures as JSON.")
@click.option(
    "--csv",
    "table",
    is_flag=False,
    flag_value="",
    metavar="[TABLE]",
    help="Print a table of any dltune document as CSV [default: its main one].",
)
@click.argument("file", type=click.Path(path_type=Path))
def command(file: Path, top: int | None, as_json: bool, table: str | None) -> None:
    """Look at a saved profile again: its steps, its ops, and why they take their time.

    With --json, figures of each op at each thread count: operations, bytes, rates, its place under
    the roofline, and the sentence.

    With --csv after FILE, a table of a profile, plan or any other document: ops, nodes, counts. A
    name that there is no table of is answered with those that there are.
    """
    if table is not None:
        if as_json or top:
            raise UsageError("--csv goes with neither --json nor --top", remedy="leave out the one")
        from dltune.frames import csv_text, reading

        csv_text.write(reading.table(file, table or None), sys.stdout)
        return
    from dltune.documents import profile as document

    found = document.load(file)
    if as_json:
        import msgspec

        from dltune.analysis.figures import analyse
        from dltune.analysis.report import report

        click.echo(msgspec.json.encode(report(analyse(found), top)).decode())
        return
    from dltune.cli.profile_tables import describe

    describe(found, top or 12)
