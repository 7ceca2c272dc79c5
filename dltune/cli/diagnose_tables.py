"""A diagnosis on the terminal: the limit of a step, then the findings."""

from __future__ import annotations

import click

from dltune.cli.results import LONGEST, show_finding, show_unseen
from dltune.documents.diagnosis import Diagnosis
from dltune.findings.words import NOTHING, further, limit
from dltune.visible import visible


def show(diagnosis: Diagnosis) -> None:
    if diagnosis.step:
        click.echo(limit(diagnosis.step))
    elif diagnosis.no_step:
        click.echo(f"no step was measured: {visible(diagnosis.no_step, LONGEST)}")
    if not diagnosis.findings:
        click.echo(NOTHING)
    if words := further(diagnosis):
        click.echo(words)
    for number, finding in enumerate(diagnosis.findings, 1):
        click.echo()
        show_finding(finding, f"{number}. ", "   ")
        if finding.apply:
            click.echo(f"   --plan applies it: {', '.join(map(str, finding.apply))}")
    show_unseen(diagnosis.unseen)
