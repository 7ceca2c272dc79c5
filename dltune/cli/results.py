"""A command's result: its file, claimed before the work begins; and the report on it."""

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

from dltune.base.errors import UsageError
from dltune.base.formatting import visible

if TYPE_CHECKING:
    from dltune.base.documents import Output
    from dltune.schemas.diagnosis import Finding
    from dltune.views import Context, Findings, View

T = TypeVar("T")
LONGEST = 4000  # characters of a sentence


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


def print_json(document: object) -> None:
    """In one line."""
    from dltune.base.documents import encode

    click.echo(encode(document).decode())


def show_findings(piece: Findings) -> None:
    """Print findings under a heading; ranked findings with their numbers instead."""
    if piece.ranked:
        for number, finding in enumerate(piece.findings, 1):
            click.echo()
            _show_finding(finding, f"{number}. ", "   ")
            if finding.apply:
                click.echo(f"   --plan applies: {', '.join(map(str, finding.apply))}")
        return
    click.echo("\nfindings")
    for finding in piece.findings:
        _show_finding(finding, "  ", "      ")
    if not piece.findings:
        click.echo("  none")


def _show_finding(finding: Finding, first: str, indent: str) -> None:
    """Print the title after `first`, then evidence, cost, fix and expected gain after `indent`."""
    from dltune.findings.diagnosis import capitalize, format_cost, format_gain, to_sentence

    _show(first, indent, capitalize(finding.title))
    for label, text in (
        ("", to_sentence(finding.evidence) if finding.evidence else ""),
        ("Cost: ", format_cost(finding)),
        ("Fix: ", finding.fix),
        ("Expected: ", format_gain(finding)),
    ):
        if text:
            _show(indent, indent, f"{label}{text}")


def show_unobserved(sentences: Sequence[str]) -> None:
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
