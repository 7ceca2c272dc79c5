"""`dltune io-report`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.base.errors import JobFailed, UsageError
from dltune.base.formatting import between_commas

if TYPE_CHECKING:
    from dltune.schemas.io import Io
    from dltune.system.proc.stat import Tree

PID_SECONDS = 30.0


@click.command("io-report", epilog="\b\nExample:\n  dltune io-report -- python train.py")
@click.option(
    "--pid",
    type=click.IntRange(min=1),
    metavar="PID",
    help="Watch this running process and its children.",
)
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare the ways to read this file or LMDB folder, without a job.",
)
@click.option(
    "--readers",
    default="1,2,4,8",
    show_default=True,
    metavar="COUNTS",
    help="With --file, try these numbers of reader processes.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1.0),
    metavar="SECONDS",
    help="Stop after SECONDS (with --file: approximately).  "
    "[default: at the job's end; with --pid, 30; with --file, 60]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the report to FILE as JSON.",
)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.argument("job", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")
def command(
    pid: int | None,
    file: Path | None,
    readers: str,
    seconds: float | None,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
    job: tuple[str, ...],
) -> None:
    """Report why reading training data is slow.

    dltune starts CMD unmodified, or watches a running process (--pid). It reports which data files
    the job reads and how, how much comes from storage, and which threads wait for storage.

    With --file, there is no job: dltune reads the file in the ways that training jobs do, each time
    from cold storage, and compares their speed. Findings with suggested fixes come last.
    """
    from dltune.cli import interrupts, results
    from dltune.watch.files.view import view

    if sum((pid is not None, file is not None, bool(job))) != 1:
        raise UsageError(
            "give exactly one of: a command after --, --pid, --file",
            remedy="try: dltune io-report -- python train.py",
        )
    results.require_apart([file], [output])
    with interrupts.reported(), results.claimed(output, overwrite=overwrite) as kept:
        if file is not None:
            document, code = _read(file, readers, seconds), 0
        elif pid is not None:
            document, code = _watch_process(pid, seconds or PID_SECONDS), 0
        else:
            document, code = _watch_job(job, seconds)
        if kept:
            kept.write(document)
    results.tell(document, view, as_json=as_json, written=[output])
    if code:
        raise JobFailed(f"the job ended with exit code {code}; the report is still valid", code)


def _watch_process(pid: int, seconds: float) -> Io:
    from dltune.system.proc.stat import Tree

    return _watched(Tree(pid), f"pid {pid}", seconds, lambda: False)[0]


def _watch_job(job: tuple[str, ...], seconds: float | None) -> tuple[Io, int]:
    """The report, and the job's exit code; 0 for a job that dltune ended."""
    import shlex

    from dltune.job.launch import Job
    from dltune.system.proc.stat import Tree

    # the job's own output goes to stderr: results have stdout for themselves
    with Job(job, stdout=2, plain=True) as running:
        tree = Tree(running.pid)
        document, ended = _watched(
            tree, shlex.join(job), seconds, lambda: running.exit_code is not None
        )
        return document, 0 if ended else running.exit_code or 0


def _watched(
    tree: Tree, subject: str, seconds: float | None, over: Callable[[], bool]
) -> tuple[Io, bool]:
    """The report, and whether a signal ended the watch."""
    from dltune.cli import interrupts
    from dltune.cli.progress import live
    from dltune.systems.lmdb.commands import io_live
    from dltune.watch.files.document import assemble
    from dltune.watch.files.watch import Watch

    partial = None
    with Watch(tree) as watch:
        with live(
            f"watching {subject}",
            lambda: io_live.watched(watch),
            lambda: [io_live.open_files(watch), io_live.waiting(watch)],
        ) as tell:
            try:
                watch.run(seconds, over, tell)
            except interrupts.Ended as ended:
                partial = f"stopped by {ended} after {watch.ended - watch.began:.0f} s"
        return assemble(watch, subject, partial), partial is not None


def _read(file: Path, readers: str, seconds: float | None) -> Io:
    from dltune.cli import progress
    from dltune.systems.lmdb.experiments.session import experiment

    counts = between_commas(readers)
    if not counts or any(not part.isdecimal() or not 1 <= int(part) <= 256 for part in counts):
        raise UsageError(
            f"--readers {readers!r} must be a comma-separated list of numbers from 1 to 256",
            remedy="for example, --readers 1,2,4,8",
        )
    with progress.line() as line:
        return experiment(
            file,
            sorted({int(part) for part in counts}),
            seconds or 60.0,
            say=line.say,
            tell=lambda text: line.show(text, (text.partition(",")[0],)),
        )
