"""`dltune show`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("show")
@click.option("--top", type=click.IntRange(min=1), help="Ops shown [default: 12; --json: all].")
@click.option("--json", "as_json", is_flag=True, help="Print the derived figures as JSON.")
@click.argument("profile", type=click.Path(path_type=Path))
def command(profile: Path, top: int | None, as_json: bool) -> None:
    """Look at a saved profile again: its steps, its ops, and why they take their time.

    With --json, figures of each op at each thread count: operations, bytes, rates, its place under
    the roofline, and the sentence.
    """
    from dltune.documents import profile as document

    found = document.load(profile)
    if as_json:
        import msgspec

        from dltune.analysis.figures import analyse
        from dltune.analysis.report import report

        click.echo(msgspec.json.encode(report(analyse(found), top)).decode())
        return
    from dltune.cli.profile_tables import describe

    describe(found, top or 12)
