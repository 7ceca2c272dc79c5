"""A command's result: its file, claimed before the work begins; and the report on it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dltune.base.errors import JobFailed, UsageError

if TYPE_CHECKING:
    import msgspec

    from dltune.base.documents import Output
    from dltune.views import Context, View

T = TypeVar("T", bound="msgspec.Struct")


def require_apart(read: Iterable[Path | None], written: Iterable[Path | None]) -> None:
    """Raises UsageError where a file is read and to be written: its content would be lost."""
    resolved = set(map(os.path.realpath, filter(None, written)))
    for path in filter(None, read):
        if os.path.realpath(path) in resolved:
            raise UsageError(
                f"{path} is both input and output", remedy="choose another output file"
            )


def claimed(
    path: Path | None, *, overwrite: bool
) -> contextlib.AbstractContextManager[Output | None]:
    """The file, claimed for the time of a block; None where none is named."""
    from dltune.base.documents import claim

    return claim(path, overwrite=overwrite) if path else contextlib.nullcontext()


def tell(
    document: T,
    view: Callable[[T, Context], View],
    *,
    as_json: bool,
    written: Iterable[Path | None],
) -> None:
    """Print the view of a document, or the document as JSON; then name the files that were
    written."""
    from dltune.cli.terminal import show_view
    from dltune.views import Context

    if as_json:
        print_json(document)
    else:
        show_view(view(document, Context()))
    for path in filter(None, written):
        click.echo(f"written to {path}", err=as_json)


def report_on_job(
    make: Callable[[], tuple[T, int]],
    view: Callable[[T, Context], View],
    output: Path | None,
    *,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write to `output` and print the report that `make` returns with the job's exit code, 0 if
    dltune has started no job or has ended it. Raises JobFailed for another code."""
    from dltune.cli import terminal

    with terminal.reported(), claimed(output, overwrite=overwrite) as kept:
        document, code = make()
        if kept:
            kept.write(document)
    tell(document, view, as_json=as_json, written=[output])
    if code:
        raise JobFailed(f"the job ended with exit code {code}; the report is still valid", code)


def print_json(document: object) -> None:
    """In one line."""
    from dltune.base.documents import encode

    click.echo(encode(document).decode())
