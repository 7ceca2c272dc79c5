"""`dltune report`."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from dltune.base.errors import UsageError
from dltune.cli.options import PATH, example
from dltune.cli.results import require_apart


@click.command(
    "report", epilog=example("dltune report profile.json plan.json bench.json -o report.html")
)
@click.argument("files", type=PATH, nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=PATH,
    help="Write the page to PATH (default: report.html, unless --perfetto is given).",
)
@click.option(
    "--perfetto",
    type=PATH,
    metavar="FILE.json.gz",
    help="Write the timelines of profiles and plans for ui.perfetto.dev and chrome://tracing.",
)
@click.option("--overwrite", is_flag=True, help="Replace output files that exist.")
def command(
    files: tuple[Path, ...], output: Path | None, perfetto: Path | None, overwrite: bool
) -> None:
    """Write an HTML page, or a timeline for Perfetto, from dltune documents.

    FILES are profiles, plans and results, in any order. The page is one file and needs no
    network. It shows related documents together: a profile with its plan, and a plan with the
    benchmark that measured it.
    """
    from dltune.base.documents import claim
    from dltune.report.page import read

    if output is None and perfetto is None:
        output = Path("report.html")
    written = [path for path in (output, perfetto) if path]
    if len({path.resolve() for path in written}) < len(written):
        raise UsageError("-o and --perfetto name the same file", remedy="give them two names")
    require_apart(files, written)
    context = read(files)
    with contextlib.ExitStack() as stack:
        claimed = [(p, stack.enter_context(claim(p, overwrite=overwrite))) for p in written]
        for path, file in claimed:
            if path is perfetto:
                from dltune.report.perfetto import trace

                content = trace(context)
            else:
                from dltune.report.page import page

                content = page(context)
            file.write_bytes(content)
            click.echo(f"written to {path}: {_size(len(content))}")


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
