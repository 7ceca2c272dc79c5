"""A command's result: its file, claimed before the work begins; and what is told of it then."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dltune.errors import UsageError
from dltune.visible import visible

if TYPE_CHECKING:
    from dltune.documents.files import Output
    from dltune.documents.finding import Finding

T = TypeVar("T")
LONGEST = 4000  # characters of a sentence


def require_apart(read: Iterable[Path | None], written: Iterable[Path | None]) -> None:
    """Raises UsageError where a file is read and to be written: what it holds would be lost."""
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
    from dltune.documents.files import encode

    click.echo(encode(document).decode())


def show_findings(findings: Sequence[Finding], unseen: Sequence[str] = ()) -> None:
    """What follows from what was measured, and what could not be seen."""
    click.echo("\nfindings")
    for finding in findings:
        show_finding(finding, "  ", "      ")
    if not findings:
        click.echo("  none")
    show_unseen(unseen)


def show_finding(finding: Finding, first: str, indent: str) -> None:
    """Print the title after `first`, then evidence, cost, fix and expected gain after `indent`."""
    from dltune.findings.finding_text import capitalize, format_cost, format_gain, to_sentence

    _show(first, indent, capitalize(finding.title))
    for label, text in (
        ("", to_sentence(finding.evidence) if finding.evidence else ""),
        ("Cost: ", format_cost(finding)),
        ("Fix: ", finding.fix),
        ("Expected: ", format_gain(finding)),
    ):
        if text:
            _show(indent, indent, f"{label}{text}")


def show_unseen(sentences: Sequence[str]) -> None:
    if sentences:
        click.echo("\nnot observed")
    for sentence in sentences:
        _show("  ", "    ", sentence)


def _show(first: str, indent: str, text: str) -> None:
    """Print `text` after `first`; on a terminal, the lines that follow are indented."""
    text = first + visible(text, LONGEST)
    if sys.stdout.isatty():
        text = textwrap.fill(
            text,
            shutil.get_terminal_size().columns,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    click.echo(text)
