"""`dltune lmdb`."""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.cli.results import print_json

if TYPE_CHECKING:
    from dltune.systems.lmdb.format.index import Index
    from dltune.systems.lmdb.format.lmdb_binding import Tell

QUIET_SECONDS = 1.0  # of work before progress is shown
_HIDDEN = re.compile(rb"[^ -~]|\\")  # bytes that are not printable ASCII, and backslashes

_FILE = click.argument("file", type=click.Path(path_type=Path))
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def _example(arguments: str) -> str:
    return f"\b\nExample:\n  dltune lmdb {arguments}"


@click.group("lmdb", epilog=_example("verify train.lmdb"))
def command() -> None:
    """Index, list or check an LMDB file.

    FILE is a data file (data.mdb) or its folder. dltune reads it with its own parser, so the LMDB
    library is not needed, and never writes to it.
    """


@command.command("index", epilog=_example("index train.lmdb"))
@_JSON
@_FILE
def index(file: Path, as_json: bool) -> None:
    """Store the offset of each record in an index file.

    The index (data.mdb.dltune-index, next to the data file) lets Reader and Records of
    dltune.systems.lmdb read each record directly. They make the index themselves if it is missing,
    and again after the data file has changed; this command makes it in advance.
    """
    from dltune.systems.lmdb.format.index import Index
    from dltune.systems.lmdb.format.index_file import beside

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
    from dltune.cli import tables

    figures = ("records", "bytes", "smallest", "largest")
    rows = [
        ("(main)" if one["name"] is None else str(one["name"]), *(str(one[f]) for f in figures))
        for one in described
    ]
    heads = columns("database", *(f">{figure}" for figure in figures))
    tables.show(Table(f"{main.path}, transaction {main.txn}", heads, rows), gap=False)
    if kept is not None:
        click.echo(f"index written to {kept}")
    else:
        click.echo(f"dltune: warning: the index was not stored: {main.unsaved}", err=True)


@command.command("keys", epilog=_example("keys train.lmdb | head"))
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


@command.command("verify", epilog=_example("verify train.lmdb"))
@_JSON
@_FILE
def verify(file: Path, as_json: bool) -> None:
    """Check the structure of the whole file for damage.

    Checks both meta pages, each tree (page numbers, bounds, order of keys, counts), overflow pages,
    the list of free pages, and that no page is used twice. Does not check the contents of records.
    The exit code is 1 if there are faults.
    """
    from dltune.base.errors import GateFailed
    from dltune.systems.lmdb.format.verify import verify as examine

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
    from dltune.cli import progress

    with contextlib.ExitStack() as stack:
        line: progress.Line | None = None
        began: float | None = None  # not while the native part is built

        def tell(done: int, every: int) -> None:
            nonlocal line, began
            began = began or time.monotonic()
            if time.monotonic() - began < QUIET_SECONDS:
                return
            if line is None:
                line = stack.enter_context(progress.line())
            line.show(f"{done} of {every} pages read", ("pages",))

        yield tell
