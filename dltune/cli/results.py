"""A command's result: its file, claimed before the work begins; and what is told of it then."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dltune.visible import visible

if TYPE_CHECKING:
    from dltune.documents.files import Output

T = TypeVar("T")
LONGEST = 4000  # characters of a sentence


def claimed(
    path: Path | None, *, overwrite: bool
) -> contextlib.AbstractContextManager[Output | None]:
    """The file, claimed for the time of a block; None where none is named."""
    from dltune.documents.files import claim

    return claim(path, overwrite=overwrite) if path else contextlib.nullcontext()


def tell(
    document: T, draw: Callable[[T], None], *, as_json: bool, written: Iterable[Path | None]
) -> None:
    """Draw the document, or print it as JSON; then name the files that were written."""
    if as_json:
        print_json(document)
    else:
        draw(document)
    for path in filter(None, written):
        click.echo(f"written to {path}", err=as_json)


def print_json(document: object) -> None:
    """In one line."""
    import msgspec

    click.echo(msgspec.json.encode(document).decode())


def show_findings(
    findings: Iterable[tuple[str, str | None, str | None]], unseen: Sequence[str]
) -> None:
    """What follows from a report, and what could not be seen. Each finding: what is said, the
    evidence for it, and what to do, if anything is."""
    click.echo("\nwhat follows")
    for said, evidence, advice in findings:
        click.echo(f"  {visible(said, LONGEST)}")
        if evidence:
            click.echo(f"      {visible(evidence, LONGEST)}")
        if advice:
            click.echo(f"      -> {visible(advice, LONGEST)}")
    if unseen:
        click.echo("\nnot seen")
    for sentence in unseen:
        click.echo(f"  {visible(sentence, LONGEST)}")
