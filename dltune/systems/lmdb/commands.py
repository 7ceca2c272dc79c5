"""Commands `dltune io-report` and `dltune lmdb`, and the view of a watched job on a terminal."""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.base.errors import UsageError
from dltune.base.formatting import Table, between_commas, columns, count, file_name, share, size
from dltune.cli.options import PATH, example, pid_option, report_options, seconds_option
from dltune.cli.results import print_json, report_on_job, require_apart

if TYPE_CHECKING:
    from dltune.schemas.io import Io
    from dltune.system.proc.stat import Tree
    from dltune.systems.lmdb.format.index import Index
    from dltune.systems.lmdb.format.lmdb_binding import Tell
    from dltune.watch.files.io_watch import Watch


ROWS = 8


def watched(watch: Watch) -> str:
    """Return a line about the watch so far."""
    running = sum(not seen.ended for seen in watch.processes.values())
    return (
        f"{watch.ended - watch.began:.0f} s: {running} process{'es' * (running != 1)}, "
        f"{len(watch.files.known)} data files, {watch.looks} samples"
    )


def open_files(watch: Watch) -> Table:
    """Return the data files so far, and how much of each came from storage."""
    known = sorted(watch.files.known.values(), key=lambda file: -(file.came or 0))
    rows = [
        (
            file_name(file.path),
            file.format,
            size(file.size),
            "?" if file.last is None else share(file.last.now / max(1, file.size)),
            size(file.came or 0),
        )
        for file in known[:ROWS]
    ]
    heads = columns("file", "format", ">size", ">in the page cache", ">from storage")
    return Table("data files", heads, rows)


def waiting(watch: Watch) -> Table:
    """Return the threads that have waited for storage so far, the longest first."""
    seen = [
        (process, tid, thread)
        for process in watch.processes.values()
        for (tid, _), thread in process.threads.items()
        if thread.waited
    ]
    seen.sort(key=lambda one: -one[2].waited)
    rows = [
        (
            str(process.pid),
            f"{tid} {thread.last.stat.name}",
            share(min(1.0, thread.waited / max(1e-9, thread.until - thread.since))),
            count(thread.last.voluntary - thread.first.voluntary),
            count(thread.last.stat.major - thread.first.stat.major),
        )
        for process, tid, thread in seen[:ROWS]
    ]
    heads = columns(">pid", "thread", ">waiting", ">voluntary switches", ">major faults")
    return Table("threads that wait for storage", heads, rows)


PID_SECONDS = 30.0


@click.command("io-report", epilog=example("dltune io-report -- python train.py"))
@pid_option("Watch this running process and its children.")
@click.option(
    "--file",
    "file",
    type=PATH,
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
@seconds_option(
    "Stop after SECONDS (with --file: approximately).  "
    "[default: at the job's end; with --pid, 30; with --file, 60]"
)
@report_options(overwrite="Replace FILE if it exists.")
def io_report(
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
    from dltune.watch.files.io_view import view

    if sum((pid is not None, file is not None, bool(job))) != 1:
        raise UsageError(
            "give exactly one of: a command after --, --pid, --file",
            remedy="try: dltune io-report -- python train.py",
        )
    require_apart([file], [output])

    def make() -> tuple[Io, int]:
        if file is not None:
            return _read(file, readers, seconds), 0
        if pid is not None:
            return _watch_process(pid, seconds or PID_SECONDS), 0
        return _watch_job(job, seconds)

    report_on_job(make, view, output, overwrite=overwrite, as_json=as_json)


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
    from dltune.cli import terminal
    from dltune.cli.terminal import live
    from dltune.watch.files.io_document import assemble
    from dltune.watch.files.io_watch import Watch

    partial = None
    with Watch(tree) as watch:
        with live(
            f"watching {subject}",
            lambda: watched(watch),
            lambda: [open_files(watch), waiting(watch)],
        ) as tell:
            try:
                watch.run(seconds, over, tell)
            except terminal.Ended as ended:
                partial = f"stopped by {ended} after {watch.ended - watch.began:.0f} s"
        return assemble(watch, subject, partial), partial is not None


def _read(file: Path, readers: str, seconds: float | None) -> Io:
    from dltune.cli import terminal
    from dltune.systems.lmdb.experiments.session import experiment

    counts = between_commas(readers)
    if not counts or any(not part.isdecimal() or not 1 <= int(part) <= 256 for part in counts):
        raise UsageError(
            f"--readers {readers!r} must be a comma-separated list of numbers from 1 to 256",
            remedy="for example, --readers 1,2,4,8",
        )
    with terminal.line() as line:
        return experiment(
            file,
            sorted({int(part) for part in counts}),
            seconds or 60.0,
            say=line.say,
            tell=lambda text: line.show(text, (text.partition(",")[0],)),
        )


QUIET_SECONDS = 1.0  # of work before progress is shown
_HIDDEN = re.compile(rb"[^ -~]|\\")  # bytes that are not printable ASCII, and backslashes

_FILE = click.argument("file", type=PATH)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group("lmdb", epilog=example("dltune lmdb verify train.lmdb"))
def lmdb() -> None:
    """Index, list or check an LMDB file.

    FILE is a data file (data.mdb) or its folder. dltune reads it with its own parser, so the LMDB
    library is not needed, and never writes to it.
    """


@lmdb.command("index", epilog=example("dltune lmdb index train.lmdb"))
@_JSON
@_FILE
def index(file: Path, as_json: bool) -> None:
    """Store the offset of each record in an index file.

    The index (data.mdb.dltune-index, next to the data file) lets Reader and Records of
    dltune.systems.lmdb read each record directly. They make the index themselves if it is missing,
    and again after the data file has changed; this command makes it in advance.
    """
    from dltune.systems.lmdb.format.index import Index, beside

    with _progress() as tell:
        databases = Index.all(file, tell=tell)
    main = databases[0]
    kept = None if main.unsaved else beside(main.path)
    described = [_described(database) for database in databases]
    if as_json:
        shown = {
            "path": str(main.path),
            "txn": main.txn,
            "index": None if kept is None else str(kept),
            "unsaved": main.unsaved,
            "databases": described,
        }
        print_json(shown)
        return
    from dltune.base.formatting import Table, columns
    from dltune.cli import terminal

    figures = ("records", "bytes", "smallest", "largest")
    rows = [
        ("(main)" if one["name"] is None else str(one["name"]), *(str(one[f]) for f in figures))
        for one in described
    ]
    heads = columns("database", *(f">{figure}" for figure in figures))
    terminal.show(Table(f"{main.path}, transaction {main.txn}", heads, rows), gap=False)
    if kept is not None:
        click.echo(f"index written to {kept}")
    else:
        click.echo(f"dltune: warning: the index was not stored: {main.unsaved}", err=True)


@lmdb.command("keys", epilog=example("dltune lmdb keys train.lmdb | head"))
@click.option(
    "--database", metavar="NAME", help="List this named database.  [default: the main database]"
)
@_FILE
def keys(file: Path, database: str | None) -> None:
    r"""Print each key of a database, one per line, in order.

    Backslashes and bytes that are not printable ASCII are printed as \xNN.
    """
    from dltune.systems.lmdb.format.index import Index

    with _progress() as tell:
        found = Index.open(file, database.encode() if database else None, tell=tell)
    for key, _ in itertools.groupby(found.keys()):
        sys.stdout.write(printable(key) + "\n")
    sys.stdout.flush()
    if found.unsaved:
        click.echo(f"dltune: warning: the index was not stored: {found.unsaved}", err=True)


@lmdb.command("verify", epilog=example("dltune lmdb verify train.lmdb"))
@_JSON
@_FILE
def verify(file: Path, as_json: bool) -> None:
    """Check the structure of the whole file for damage.

    Checks both meta pages, each tree (page numbers, bounds, order of keys, counts), overflow pages,
    the list of free pages, and that no page is used twice. Does not check the contents of records.
    The exit code is 1 if there are faults.
    """
    from dltune.base.errors import GateFailed
    from dltune.systems.lmdb.format.lmdb_binding import verify as examine

    with _progress() as tell:
        report = examine(file, tell=tell)
    if as_json:
        print_json(report)
    else:
        for fault in report.faults:
            click.echo(fault)
        click.echo(
            f"{report.path}: LMDB data version {report.version}, "
            f"pages of {report.page_size} bytes, transaction {report.txn}\n"
            f"{report.records} records in {report.databases} "
            f"database{'s' * (report.databases != 1)}; "
            f"{report.used} pages in use, {report.free} free"
            + (f", {report.lost} lost (neither in use nor free)" if report.lost else "")
        )
        if not report.fault_count:
            click.echo("no faults found")
    if report.fault_count:
        faults = "a fault" if report.fault_count == 1 else f"{report.fault_count} faults"
        raise GateFailed(
            f"{report.path} has {faults}", remedy="restore the file, or write it again"
        )


def printable(key: bytes) -> str:
    r"""The key as ASCII; other bytes and the backslash as \xNN."""
    text = key.decode("latin-1")
    if text.isascii() and text.isprintable() and "\\" not in text:
        return text  # as most are, and there are millions
    return _HIDDEN.sub(lambda found: b"\\x%02x" % found[0][0], key).decode("ascii")


def _described(database: Index) -> dict[str, object]:
    sizes = database.sizes
    return {
        "name": None if database.name is None else printable(database.name),
        "records": len(database),
        "duplicates": database.duplicates,
        "bytes": int(sizes.sum(dtype="u8")),
        "smallest": int(sizes.min()) if len(sizes) else 0,
        "largest": int(sizes.max()) if len(sizes) else 0,
    }


@contextlib.contextmanager
def _progress() -> Iterator[Tell]:
    """Tells of pages read on stderr, when reading takes long enough to wonder."""
    from dltune.cli import terminal

    with contextlib.ExitStack() as stack:
        line: terminal.Line | None = None
        began: float | None = None  # not while the native part is built

        def tell(done: int, every: int) -> None:
            nonlocal line, began
            began = began or time.monotonic()
            if time.monotonic() - began < QUIET_SECONDS:
                return
            if line is None:
                line = stack.enter_context(terminal.line())
            line.show(f"{done} of {every} pages read", ("pages",))

        yield tell
