"""`dltune doctor`: what can be measured and enforced on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.errors import UsageError
from dltune.machine.checks import Check

if TYPE_CHECKING:
    from dltune.documents.roofs import Roofs
    from dltune.documents.topology import Topology
    from dltune.machine.checks.tensorflow import Installed

SCHEMA = "dltune.doctor/1"
COLOURS = {"ok": "green", "limited": "yellow", "missing": "red"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--selftest", is_flag=True, help="Check counters against work that is known, too.")
@click.option(
    "--roofs",
    is_flag=True,
    help="Instead: measure what this machine's cores reach at most, in arithmetic and in moving "
    "bytes.",
)
@click.option(
    "--ranks",
    type=click.IntRange(2, 1024),
    metavar="N",
    help="Instead: what N processes with JAX on this machine compute and send each other, for "
    "dltune plan parallelism.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --ranks: write them as a topology.  [ranks.json]",
)
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
def command(
    as_json: bool,
    selftest: bool,
    roofs: bool,
    ranks: int | None,
    output: Path | None,
    overwrite: bool,
) -> None:
    """What can be measured and enforced on this machine.

    Each line is ok, limited or missing, says what was found and the one thing to do about it. Exit
    code 1 when something is missing that neither profile nor run can do without, or when a counter
    counts wrong.
    """
    if ranks is not None and selftest:
        raise UsageError("--selftest is of counters, which --ranks has none of", remedy="run both")
    if roofs and (selftest or ranks is not None or output is not None or overwrite):
        raise UsageError("--roofs stands alone, or with --json")
    if roofs:
        _roofs(as_json=as_json)
        return
    if ranks is not None:
        _measure(ranks, output or Path("ranks.json"), as_json=as_json, overwrite=overwrite)
        return
    if output is not None or overwrite:
        raise UsageError("-o and --overwrite are for --ranks", remedy="such as --ranks 2")
    checks = examine()
    if selftest:
        from dltune.machine.checks import events
        from dltune.machine.perf.selftest import run

        checks += [events.counted(outcome) for outcome in run()]
    if as_json:
        click.echo(document(checks))
    elif sys.stdout.isatty():
        _table(checks)
    else:
        click.echo(lines(checks))
    if any(check.required and check.state == "missing" for check in checks):
        sys.exit(1)


def _measure(ranks: int, output: Path, *, as_json: bool, overwrite: bool) -> None:
    from dltune.cli.results import claimed, tell
    from dltune.jax import links, peaks
    from dltune.machine import topology

    with claimed(output, overwrite=overwrite) as file:
        kind = peaks.kind(topology.local().name, ranks)
        speeds = links.measured(ranks)
        document = links.topology(ranks, speeds, kind)
        if file:
            file.write(document)
    tell(document, _speeds, as_json=as_json, written=[output])


def _roofs(*, as_json: bool) -> None:
    from dltune.cli.results import tell
    from dltune.machine import topology
    from dltune.machine.roofs import kept

    machine = topology.local()
    roofs = kept.measured_anew(machine)
    tell(roofs, _ceilings, as_json=as_json, written=[])


def _ceilings(roofs: Roofs) -> None:
    from dltune.cli.tables import show
    from dltune.machine.roofs.tables import remarks, tables

    click.echo(f"{roofs.cores} cores: {roofs.cpu}")
    for table in tables(roofs):
        show(table)
    click.echo("")
    for sentence in remarks(roofs):
        click.echo(sentence)


def _speeds(document: Topology) -> None:
    (kind,) = document.kinds
    link = document.links[0]
    click.echo(f"{len(document.devices)} ranks, each {kind.flops / 1e9:.1f} Gflop/s and ", nl=False)
    click.echo(f"{kind.bandwidth / 1e9:.1f} GB/s of memory ({kind.name})")
    click.echo(f"a part to another rank: {2 * link.latency * 1e6:.0f} us and ", nl=False)
    click.echo(
        f"{link.bandwidth / 1e6:,.0f} MB/s; a byte takes {document.all_reduce:.2f} times ", nl=False
    )
    click.echo(f"as long in an all-reduce, {document.all_to_all:.2f} in an all-to-all")


def examine() -> list[Check]:
    """Every check, on the machine at hand."""
    from dltune.machine import topology
    from dltune.machine.checks import cores, events, memory, native, py_spy, pytorch, tensorflow
    from dltune.machine.perf import probe

    survey = topology.survey()
    found = tensorflow.installed()
    return [
        cores.allowed(survey),
        cores.quota(survey),
        cores.smt(survey),
        cores.tiles(survey),
        cores.numa(survey),
        memory.huge_pages(),
        memory.allocators(),
        *events.perf_events(probe.available()),
        native.compiler(),
        tensorflow.tensorflow(found),
        _plugin(found),
        pytorch.pytorch(survey.machine.quota, len(survey.machine.cores)),
        py_spy.py_spy(),
    ]


def _plugin(found: Installed | None) -> Check:
    from dltune.machine.checks import native
    from dltune.tensorflow.inject import _dltune_plugin

    if found is None:
        return native.impossible("no TensorFlow here to build it for; the job's own is looked for")
    try:
        sources, flags, salt = _dltune_plugin.arguments(found.folder)
    except RuntimeError as error:
        return native.impossible(str(error))
    return native.plugin(sources, flags, salt)


def document(checks: list[Check]) -> str:
    """The report as JSON."""
    rows = [
        {"name": c.name, "state": c.state, "found": c.found, "remedy": c.remedy} for c in checks
    ]
    return json.dumps({"schema": SCHEMA, "checks": rows}, indent=1)


def lines(checks: list[Check]) -> str:
    """The report as aligned lines; a remedy stands on a line of its own below its check."""
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
    for heading in ("check", "state", "found", "what to do"):
        table.add_column(heading, no_wrap=heading in ("check", "state"), overflow="fold")
    for check in checks:
        state = Text(check.state, style=COLOURS[check.state])
        table.add_row(check.name, state, Text(check.found), Text(check.remedy or ""))
    Console().print(table)
