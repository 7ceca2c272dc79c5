"""What follows from a report, and what could not be seen, under its tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from dltune.visible import visible

LONGEST = 4000  # characters of a sentence


def show(findings: Iterable[tuple[str, str | None, str | None]], unseen: Sequence[str]) -> None:
    """Each finding: what is said, the evidence for it, and what to do, if anything is."""
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
