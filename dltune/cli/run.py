"""`dltune run`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from dltune.base.errors import JobFailed, UsageError
from dltune.cli.options import JOB, PATH, example

if TYPE_CHECKING:
    from dltune.base.documents import Output
    from dltune.plan.planner import Outcome


@click.command("run", epilog=example("dltune run --plan plan.json -- python train.py"))
@click.option(
    "--plan",
    "path",
    type=PATH,
    required=True,
    metavar="PLAN",
    help="Enforce this plan of dltune plan or dltune tune.",
)
@click.option(
    "--partial",
    is_flag=True,
    help="Enforce only what still applies if PLAN is for another machine or other graphs.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be enforced, and start nothing.")
@click.option(
    "--json", "as_json", type=PATH, metavar="FILE", help="Write the outcome to FILE as JSON."
)
@click.option("--overwrite", is_flag=True, help="Replace the outcome file if it exists.")
@JOB
def command(
    path: Path,
    partial: bool,
    dry_run: bool,
    as_json: Path | None,
    overwrite: bool,
    job: tuple[str, ...],
) -> None:
    """Run an unmodified job under a plan.

    dltune applies each section of the plan, such as threads of ops, memory or settings, without a
    change to the script. It passes on the output and the exit code of the job, and prints a summary
    on standard error at the end.

    On another thread count an op adds its numbers in another order, so results agree only to
    rounding. Make the plan with `dltune plan --bitwise` to keep them bit for bit.
    """
    from dltune.cli import terminal
    from dltune.cli.results import claimed, require_apart
    from dltune.plan.plan import Composition, load_plan, require_machine, starts_disabled
    from dltune.system import topology

    require_apart([path], [as_json])
    plan = load_plan(path, _say if partial else None)
    machine = topology.local()
    if not partial:
        require_machine(plan, machine)
    composition = Composition(plan, machine, job, os.environ, partial=partial, say=_say)
    if dry_run:
        from dltune.cli.terminal import show_body

        show_body(composition.intent())
        show_body(composition.announced())
        return
    if not job:
        raise UsageError(
            "no command to run",
            remedy="put the command after --: dltune run --plan PLAN -- python train.py",
        )
    if os.environ.get("DLTUNE_DISABLE") == "1" and not starts_disabled(plan):
        _run_plain(job, as_json)
    with contextlib.ExitStack() as stack:
        # until there is a job to pass signals on to, and while its remaining processes are ended
        stack.enter_context(terminal.reported())
        file = stack.enter_context(claimed(as_json, overwrite=overwrite))
        for sentence in composition.announced():
            _say(sentence)
        running = stack.enter_context(composition.started())
        stack.enter_context(terminal.heard(lambda number, _: running.pass_on(number)))
        # helpers of the job would end by these
        stack.enter_context(terminal.heard(lambda number, _: running.tell(number), terminal.TOLD))
        outcomes = composition.watch(running)
        code = running.exit_code
    try:
        if file:
            _write(file, outcomes)
    except UsageError as error:
        if not code:
            raise
        _say(str(error))  # the job's own code says more
    for outcome in outcomes.values():
        for sentence in outcome.sentences:
            _say(sentence)
    if code:
        why = f": {composition.cause}" if composition.cause else ""
        raise JobFailed(f"the job ended with exit code {code}{why}", code)


def _run_plain(job: tuple[str, ...], as_json: Path | None) -> NoReturn:
    """Replace dltune by the job, without the plan."""
    from dltune.job.launch import require_executable

    if as_json:
        raise UsageError(
            "DLTUNE_DISABLE=1 is set, so there is no outcome to write",
            remedy="unset DLTUNE_DISABLE, or leave out --json",
        )
    require_executable(job[0])
    _say("DLTUNE_DISABLE=1 is set: the job runs without the plan")
    os.execvp(job[0], job)


def _write(file: Output, outcomes: Mapping[str, Outcome]) -> None:
    import msgspec

    from dltune.base.documents import encode

    sections = {name: outcome.document for name, outcome in outcomes.items()}
    document = {"schema": "dltune.outcome/1", "sections": sections}
    file.write_bytes(msgspec.json.format(encode(document), indent=1) + b"\n")


def _say(text: str) -> None:
    """A terminal that is gone changes nothing of the job."""
    with contextlib.suppress(OSError):
        click.echo(f"dltune: {text}", err=True)
