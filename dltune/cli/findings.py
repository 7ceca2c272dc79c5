"""What follows from a report, and what could not be seen, under its tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click


def show(findings: Iterable[tuple[str, str, str | None]], unseen: Sequence[str]) -> None:
    """Each finding: what is said, the evidence for it, and what to do, if anything is."""
    click.echo("\nwhat follows")
    for said, evidence, advice in findings:
        click.echo(f"  {said}")
        click.echo(f"      {evidence}")
        if advice:
            click.echo(f"      -> {advice}")
    if unseen:
        click.echo("\nnot seen")
    for sentence in unseen:
        click.echo(f"  {sentence}")
