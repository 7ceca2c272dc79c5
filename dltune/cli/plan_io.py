"""`dltune plan io`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from dltune.documents.sections.io import Access
from dltune.errors import UsageError

if TYPE_CHECKING:
    from dltune.documents.sections.io import FilePlan


@click.command("io")
@click.argument("report", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="[plan.json beside REPORT]")
@click.option("--into", type=click.Path(path_type=Path), help="Put the section into this plan.")
@click.option(
    "--access",
    type=click.Choice(get_args(Access)),
    help="The order in which the job wants records.  [as reported, else strided]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the section as JSON.")
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
def command(
    report: Path,
    output: Path | None,
    into: Path | None,
    access: Access | None,
    as_json: bool,
    overwrite: bool,
) -> None:
    """How data files should be read, from the measurements of `dltune io-report`.

    `dltune run` then gives read-ahead hints to a job that is left as it is; a job that reads by
    dltune.io takes the rest from the plan.
    """
    import msgspec

    from dltune.documents import io as io_document
    from dltune.documents import plan as plan_document
    from dltune.documents.files import claim
    from dltune.machine import topology
    from dltune.planners.io.decide import decide, document, put_into

    if output and into:
        raise UsageError("-o and --into both name where the plan goes", remedy="give one of them")
    found = io_document.load(report)
    existing = plan_document.load(into) if into else None
    target = into or output or report.with_name("plan.json")
    if target.resolve() == report.resolve():
        raise UsageError(f"{target} is the report itself", remedy="choose another output")
    with claim(target, overwrite=overwrite or into is not None) as file:
        machine = topology.local()
        section = decide(found, machine, access)
        file.write(put_into(existing, section) if existing else document(section, machine))
    for reason in section.reasons:
        click.echo(reason, err=True)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(section), indent=2).decode())
    else:
        _show(section.files)
    click.echo(f"written to {target}", err=True)


def _show(planned: tuple[FilePlan, ...]) -> None:
    from dltune.cli.tables import table

    rows = []
    for file in planned:
        reader = file.reader
        way = "-" if reader is None else "direct" if reader.direct else "page cache"
        rows.append(
            (
                file.path,
                file.access,
                way,
                "-" if reader is None else str(reader.block),
                "-" if reader is None else str(reader.stagger or "all"),
                str(file.ahead),
                file.follow or "nothing",
            )
        )
    table(
        "how files are to be read",
        (
            "file",
            "access",
            "reader",
            ">block",
            ">readers at a time",
            ">hints ahead",
            "from outside",
        ),
        rows,
    )
