"""`dltune show`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dltune.base.errors import UsageError
from dltune.cli.options import PATH, example, top_option
from dltune.cli.results import print_json


@click.command("show", epilog=example("dltune show profile.json --top 5"))
@top_option("Show the N most expensive ops (default: 12; with --json: all).")
@click.option("--json", "as_json", is_flag=True, help="Print the derived figures as JSON.")
@click.option(
    "--csv",
    "table",
    is_flag=False,
    flag_value="",
    metavar="[TABLE]",
    help="Print one table of any dltune file as CSV (default: its main table).",
)
@click.argument("file", type=PATH)
def command(file: Path, top: int | None, as_json: bool, table: str | None) -> None:
    """Show a saved profile or plan again.

    For a profile: the steps, the ops, the reasons for their times, and the findings. For a plan:
    the decisions of each planner.

    With --json, a profile is printed with derived figures for each op and thread count:
    operations, bytes, rates and the share of the roofline. A plan is printed as it is.

    Put --csv after FILE. TABLE is a table of the file, such as ops, nodes or counts; an unknown
    name lists the tables of the file.
    """
    if table is not None:
        if as_json or top:
            raise UsageError(
                "--csv cannot be combined with --json or --top", remedy="leave one of them out"
            )
        from dltune.report import export

        export.write(export.table(file, table or None), sys.stdout)
        return
    from dltune.base import documents
    from dltune.cli.terminal import show_view
    from dltune.plan.plan import load_plan
    from dltune.report.kinds import plan as plan_kind
    from dltune.report.kinds import profile as profile_kind
    from dltune.schemas import profile as document
    from dltune.views import Context

    context = Context(top=top)
    if documents.schema(file).startswith("dltune.plan/"):
        # a section whose planner is not installed is reported and skipped
        plan = load_plan(file, left=lambda sentence: click.echo(sentence, err=True))
        if as_json:
            print_json(plan)
        else:
            show_view(plan_kind.view(plan, context))
        return
    found = document.load(file)
    if as_json:
        from dltune.analysis.op_tables import report
        from dltune.analysis.roofline import analyse
        from dltune.findings.evidence import Evidence
        from dltune.findings.rule import apply_rules

        analysis = analyse(found)
        print_json({**report(analysis, top), "findings": apply_rules(Evidence(profile=analysis))})
    else:
        show_view(profile_kind.view(found, context))
