"""`dltune diagnose`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.base.errors import JobFailed, UsageError
from dltune.cli import results
from dltune.cli.options import PATH, example, pid_option
from dltune.plan.duration import Duration

if TYPE_CHECKING:
    from dltune.base.documents import Output
    from dltune.schemas.plan import Plan
    from dltune.watch.examination import Examination


@click.command("diagnose", epilog=example("dltune diagnose -o diagnosis.html -- python train.py"))
@click.option(
    "--budget",
    type=Duration(),
    default="90s",
    show_default=True,
    help="Observe for at most DURATION after the framework is imported (with --pid at most 20s).",
)
@click.option(
    "-o",
    "--output",
    type=PATH,
    help="Write the result to this file: an HTML page, or data if the name ends in .json.",
)
@click.option(
    "--plan",
    "plan_path",
    type=PATH,
    help="Write the settings that dltune can apply to this plan, for `dltune run --plan`.",
)
@click.option("--overwrite", is_flag=True, help="Replace existing output files.")
@pid_option("Observe this running process and its children.")
@click.option("--keep-running", is_flag=True, help="Let the job continue after the diagnosis.")
@click.option("--verbose", is_flag=True, help="Show the job's own output on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print the diagnosis as JSON.")
@click.argument("job", nargs=-1, type=click.UNPROCESSED, metavar="[FILES... | -- CMD...]")
def command(
    budget: float,
    output: Path | None,
    plan_path: Path | None,
    overwrite: bool,
    pid: int | None,
    keep_running: bool,
    verbose: bool,
    as_json: bool,
    job: tuple[str, ...],
) -> None:
    """Find out why a training job is slow, and how to fix it.

    dltune starts CMD, observes it, measures its ops and stops it. Then it lists at most five
    causes, the most costly first, each with a fix and the expected gain. With --pid, dltune
    observes a job that is already running. With FILES, it uses saved profiles and reports of
    io-report and horovod-report, or prints a saved diagnosis again.
    """
    from dltune.cli import terminal
    from dltune.watch import examination

    if (pid is not None) + bool(job) != 1:
        raise UsageError(
            "diagnose needs exactly one of: a command, --pid, files",
            remedy="give a command after --, or --pid PID, or files of earlier measurements",
        )
    measured = bool(job) and all(name.endswith((".json", ".json.gz")) for name in job)
    if (keep_running or verbose) and (pid is not None or measured):
        raise UsageError(
            "--keep-running and --verbose need a job that dltune starts",
            remedy="remove them, or give a command after --",
        )
    results.require_apart(map(Path, job) if measured else (), (output, plan_path))
    with (
        terminal.reported(),
        results.claimed(output, overwrite=overwrite) as kept,
        results.claimed(plan_path, overwrite=overwrite) as plan,
    ):
        if pid is not None:
            seconds = min(budget, examination.PROCESS_SECONDS)
            with terminal.line() as line:
                examined = examination.examine_process(
                    pid, seconds, lambda text: line.show(text, ())
                )
            _write(examined, kept, plan, as_json=as_json)
        elif measured:
            from dltune.report.page import read

            examined = examination.examine_documents(read([Path(name) for name in job]).documents)
            _write(examined, kept, plan, as_json=as_json)
        else:
            with _job(job, budget, keep_running=keep_running, verbose=verbose) as examined:
                _write(examined, kept, plan, as_json=as_json)
                if examined.goes_on:
                    with contextlib.suppress(OSError):
                        click.echo("diagnosis complete; the job continues", err=True)
    if isinstance(examined.ended, terminal.Ended):
        sys.exit(examined.ended.exit_code)
    if examined.diagnosis.partial:
        sys.exit(examined.code or 0)
    if examined.code:
        raise JobFailed(
            f"the job ended with exit code {examined.code}; the diagnosis covers the time until"
            " then",
            examined.code,
        )


@contextlib.contextmanager
def _job(
    job: tuple[str, ...], budget: float, *, keep_running: bool, verbose: bool
) -> Iterator[Examination]:
    from dltune.cli import terminal
    from dltune.cli.profile import choice, roofs_of
    from dltune.frameworks.tensorflow.runtime import lacking_in
    from dltune.job.launch import require_enabled, require_executable
    from dltune.system import topology
    from dltune.watch.examination import examine_job

    require_enabled()
    require_executable(job[0])  # before the machine's roofs are measured
    with contextlib.ExitStack() as stack:
        with terminal.line() as line:
            machine = topology.local()
            roofs, _ = roofs_of(machine, line.say)
            examined = stack.enter_context(
                examine_job(
                    job,
                    machine,
                    budget,
                    choice("auto"),
                    roofs,
                    lacking_in,
                    line.tell,
                    line.say,
                    keep_running=keep_running,
                    verbose=verbose,
                )
            )
        yield examined


def _write(
    examined: Examination,
    output: Output | None,
    plan_output: Output | None,
    *,
    as_json: bool,
) -> None:
    """Write the files, and print the diagnosis, what was written and the next step."""
    from dltune.findings.diagnosis import next_step
    from dltune.report.kinds.diagnosis import view

    if output and output.path.name.endswith((".json", ".json.gz")):
        output.write(examined.diagnosis)
    elif output:
        output.write_bytes(_page(examined))
    plan = _plan(examined) if plan_output else None
    if plan_output and plan:
        plan_output.write(plan)
    plan_path = plan_output.path if plan_output and plan else None
    written = [output.path if output else None, plan_path]
    results.tell(examined.diagnosis, view, as_json=as_json, written=written)
    if plan_output and not plan:
        stays = f"; {plan_output.path} is unchanged" if plan_output.path.exists() else ""
        click.echo(f"no plan written: dltune can apply none of the fixes{stays}", err=True)
    words = next_step(examined.diagnosis, examined.command, plan_path)
    if words and not as_json:
        click.echo(f"\n{words}")


def _plan(examined: Examination) -> Plan | None:
    """Return the plan of the fixes that dltune can apply by itself; None if there are none."""
    from dltune.findings.diagnosis import make_fix_plan
    from dltune.plan.plan import new_plan
    from dltune.system import topology

    section = make_fix_plan(examined.diagnosis, examined.command)
    if section is None:
        return None
    machine = examined.diagnosis.machine or topology.local()
    return new_plan(machine, sections={"settings": section})


def _page(examined: Examination) -> bytes:
    from dltune.report.page import page
    from dltune.views import Context, Loaded

    every = (("diagnosis", examined.diagnosis), *examined.documents)
    return page(Context([Loaded(Path(kind), f"dltune.{kind}", of, kind) for kind, of in every]))
