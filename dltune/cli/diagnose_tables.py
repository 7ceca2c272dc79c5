"""A diagnosis on the terminal: the step time and its limit, the findings, the next command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from dltune.cli.results import LONGEST, show_finding, show_unseen
from dltune.documents.diagnosis import Diagnosis
from dltune.findings.finding_text import NO_CAUSE, format_limit, suggest_next, to_sentence
from dltune.visible import visible


def show(diagnosis: Diagnosis) -> None:
    if diagnosis.step:
        click.echo(to_sentence(format_limit(diagnosis.step)))
    elif diagnosis.no_step:
        click.echo(f"No step was measured: {visible(diagnosis.no_step, LONGEST)}")
    if diagnosis.partial:
        click.echo(f"The diagnosis is incomplete: {visible(diagnosis.partial, LONGEST)}")
    if not diagnosis.findings:
        click.echo(to_sentence(NO_CAUSE))
    for number, finding in enumerate(diagnosis.findings, 1):
        click.echo()
        show_finding(finding, f"{number}. ", "   ")
        if finding.apply:
            click.echo(f"   --plan applies: {', '.join(map(str, finding.apply))}")
    if sum(finding.share or 0.0 for finding in diagnosis.findings) > 1:
        click.echo("\nCosts overlap: they do not add up, and fixing one can change another.")
    show_unseen(diagnosis.unseen)


def next_step(diagnosis: Diagnosis, job: Sequence[str], plan: Path | None) -> str:
    """The next command to type, or an empty string. `plan`: the plan that was written."""
    if not diagnosis.findings:
        return to_sentence(words) if (words := suggest_next(diagnosis)) else ""
    command = visible(shlex.join(job), LONGEST) if job else "CMD"
    if plan:
        return f"Next: dltune run --plan {shlex.quote(str(plan))} -- {command}"
    if any(finding.apply for finding in diagnosis.findings):
        return (
            "Next: repeat with --plan plan.json, then start the job with "
            f"`dltune run --plan plan.json -- {command}`."
        )
    if names := dict.fromkeys(name for one in diagnosis.findings for name in one.try_next):
        return (
            f"Next: `dltune tune --only {','.join(names)} -- {command}` measures these settings "
            "on the job."
        )
    return "Next: apply the first fix, then run `dltune diagnose` again."
