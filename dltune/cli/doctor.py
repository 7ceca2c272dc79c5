"""`dltune doctor`: what can be measured and enforced on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.base.errors import UsageError
from dltune.cli.options import example
from dltune.extensions import find, load
from dltune.system.checks import Check

if TYPE_CHECKING:
    from dltune.schemas.machine import Roofs
    from dltune.system.checks.software import Installed
    from dltune.views import Context, Piece, View

SCHEMA = "dltune.doctor/1"
COLOURS = {"ok": "green", "limited": "yellow", "missing": "red"}


@click.command(epilog=example("dltune doctor"))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--selftest", is_flag=True, help="Also check the counters against known work.")
@click.option(
    "--roofs",
    is_flag=True,
    help="Measure the machine's peak arithmetic rate and peak bandwidth instead.",
)
@click.option(
    "--ranks",
    type=click.IntRange(2, 1024),
    metavar="N",
    help=(
        "Measure the compute and transfer rates of N JAX processes instead (for `dltune plan "
        "parallelism`)."
    ),
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the topology of --ranks to FILE (default: ranks.json).",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing output file.")
def command(
    as_json: bool,
    selftest: bool,
    roofs: bool,
    ranks: int | None,
    output: Path | None,
    overwrite: bool,
) -> None:
    """Check what dltune can measure and control on this machine.

    Each line shows one check, its state (ok, limited or missing) and its result; the line after
    -> says how to improve it. The exit code is 1 if something is missing that `dltune profile` and
    `dltune run` need, or if a counter counts wrongly.
    """
    if ranks is not None and selftest:
        raise UsageError(
            "--selftest cannot be combined with --ranks",
            remedy="run dltune doctor twice, once with each option",
        )
    if roofs and (selftest or ranks is not None or output is not None or overwrite):
        raise UsageError(
            "--roofs can only be combined with --json", remedy="leave the other options out"
        )
    if roofs:
        _roofs(as_json=as_json)
        return
    if ranks is not None:
        _measure(ranks, output or Path("ranks.json"), as_json=as_json, overwrite=overwrite)
        return
    if output is not None or overwrite:
        raise UsageError(
            "-o and --overwrite need --ranks", remedy="add --ranks N, such as --ranks 2"
        )
    checks = examine()
    if selftest:
        from dltune.system.checks import hardware
        from dltune.system.perf.counters import self_test

        checks += [hardware.counted(outcome) for outcome in self_test()]
    if as_json:
        click.echo(document(checks))
    elif sys.stdout.isatty():
        _table(checks)
    else:
        click.echo(lines(checks))
    if any(check.required and check.state == "missing" for check in checks):
        sys.exit(1)


def _measure(ranks: int, output: Path, *, as_json: bool, overwrite: bool) -> None:
    measure = find("measurements", "ranks")
    if measure is None:
        raise UsageError(
            "the system or package that measures ranks is not installed",
            remedy="install it, or leave --ranks out",
        )
    load(measure)(ranks, output, as_json=as_json, overwrite=overwrite)


def _roofs(*, as_json: bool) -> None:
    from dltune.cli.results import tell
    from dltune.system import topology
    from dltune.system.roofs.measure import measured_anew

    machine = topology.local()
    roofs = measured_anew(machine)
    tell(roofs, _ceilings, as_json=as_json, written=[])


def _ceilings(roofs: Roofs, _: Context) -> View:
    from dltune.system.roofs.measure import remarks, roof_tables
    from dltune.views import Section, View

    body: list[Piece] = [
        f"{roofs.cores} cores: {roofs.cpu}",
        *roof_tables(roofs),
        "",
        *remarks(roofs),
    ]
    return View([Section("roofs", "", body)])


def examine() -> list[Check]:
    """Every check, on the machine at hand."""
    from dltune.system import topology
    from dltune.system.checks import hardware, software
    from dltune.system.perf import access

    survey = topology.survey()
    found = software.installed_tensorflow()
    return [
        hardware.allowed(survey),
        hardware.quota(survey),
        hardware.smt(survey),
        hardware.tiles(survey),
        hardware.numa(survey),
        hardware.huge_pages(),
        hardware.allocators(),
        *hardware.perf_events(access.available()),
        software.compiler(),
        software.tensorflow(found),
        _plugin(found),
        software.pytorch(survey.machine.quota, len(survey.machine.cores)),
        software.py_spy(),
    ]


def _plugin(found: Installed | None) -> Check:
    from dltune.frameworks.bootstrap import _dltune_plugin
    from dltune.frameworks.tensorflow.inject import _dltune_tensorflow
    from dltune.system.checks import software

    if found is None:
        return software.impossible(
            "this Python has no TensorFlow; dltune builds the plugin for the job's TensorFlow"
        )
    try:
        flags, salt = _dltune_tensorflow.arguments(found.folder)
    except RuntimeError as error:
        return software.impossible(str(error))
    sources = _dltune_plugin.sources(_dltune_tensorflow.PLUGIN)
    return software.plugin(sources, flags, salt)


def document(checks: list[Check]) -> str:
    """The report as JSON."""
    rows = [
        {"name": c.name, "state": c.state, "found": c.found, "remedy": c.remedy} for c in checks
    ]
    return json.dumps({"schema": SCHEMA, "checks": rows}, indent=1)


def lines(checks: list[Check]) -> str:
    """The report as aligned lines; a remedy is on a separate line below its check."""
    names = max(len(check.name) for check in checks)
    states = max(len(check.state) for check in checks)
    rows = []
    for check in checks:
        rows.append(f"{check.name:<{names}}  {check.state:<{states}}  {check.found}")
        if check.remedy:
            rows.append(f"{'':<{names}}  {'':<{states}}  -> {check.remedy}")
    return "\n".join(rows)


def _table(checks: list[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold")
    for heading in ("check", "state", "result", "what to do"):
        table.add_column(heading, no_wrap=heading in ("check", "state"), overflow="fold")
    for check in checks:
        state = Text(check.state, style=COLOURS[check.state])
        table.add_row(check.name, state, Text(check.found), Text(check.remedy or ""))
    Console().print(table)
