"""`dltune profile`."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.base.errors import DltuneError, JobFailed, UsageError
from dltune.base.formatting import between_commas
from dltune.cli.options import JOB, PATH, example, top_option
from dltune.cli.results import print_json, require_apart

if TYPE_CHECKING:
    from collections.abc import Callable

    from dltune.job.launch import Job
    from dltune.profile.climb import Choice
    from dltune.profile.session import Session
    from dltune.profile.standalone import StandaloneJob
    from dltune.schemas.machine import Machine, Roofs
    from dltune.schemas.profile import Profile
    from dltune.schemas.settings import SettingsPlan


@click.command("profile", epilog=example("dltune profile -o profile.json -- python train.py"))
@click.option(
    "-o",
    "--output",
    type=PATH,
    default=Path("profile.json"),
    show_default=True,
    help="Write the profile to this file, gzipped if the name ends in .gz.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing output file.")
@click.option(
    "--interval",
    type=click.IntRange(min=1),
    metavar="N",
    help="Try every Nth thread count (default: cores/16, at least 1).",
)
@click.option(
    "--steps",
    "cap",
    type=click.IntRange(min=3),
    default=8,
    show_default=True,
    metavar="N",
    help="Run at most N steps at each thread count, or fewer if the op times agree.",
)
@click.option(
    "--counters",
    default="auto",
    show_default=True,
    metavar="LIST|PRESET|none",
    help=(
        "Count these comma-separated events in each op, or a preset: paper, topdown, memory, "
        "software, knl; auto is paper if the CPU's counters are available, else software."
    ),
)
@click.option(
    "--ops-of",
    type=PATH,
    metavar="PROFILE",
    help="Run the ops of PROFILE standalone, with made-up inputs, instead of a job.",
)
@click.option(
    "--from",
    "trace",
    type=PATH,
    metavar="TRACE",
    help="Read a trace of PyTorch's or JAX's profiler instead of running a job.",
)
@click.option(
    "--batch",
    metavar="LIST",
    help="Use these batch sizes with --ops-of, such as 16,32 (default: as measured).",
)
@click.option(
    "--plan",
    "plan_path",
    type=PATH,
    help="Apply the settings of this plan to the job (see `dltune tune`).",
)
@click.option("--keep-running", is_flag=True, help="Let the job continue after the measurement.")
@click.option("--verbose", is_flag=True, help="Print the job's own output on stderr.")
@top_option("Show the N most expensive ops.", default=12)
@click.option("--json", "as_json", is_flag=True, help="Print the profile as JSON.")
@JOB
def command(
    output: Path,
    overwrite: bool,
    interval: int | None,
    cap: int,
    counters: str,
    ops_of: Path | None,
    trace: Path | None,
    batch: str | None,
    plan_path: Path | None,
    keep_running: bool,
    verbose: bool,
    top: int,
    as_json: bool,
    job: tuple[str, ...],
) -> None:
    """Measure each op of an unmodified training job at several thread counts.

    dltune starts the job, finds its training step, runs the step at increasing thread counts,
    writes the profile and stops the job: SIGTERM to its process group, then SIGKILL after 10 s.
    """
    require_apart((ops_of, trace, plan_path), [output])
    if trace:
        source = click.get_current_context().get_parameter_source
        default = click.core.ParameterSource.DEFAULT
        chosen = any(source(name) is not default for name in ("interval", "cap", "counters"))
        if job or ops_of or batch or plan_path or keep_running or verbose or chosen:
            raise UsageError(
                "--from reads a finished measurement and cannot be combined with a job or its "
                "options",
                remedy="use only -o, --overwrite, --top and --json with --from",
            )
        _show(_imported(trace, output, overwrite), output, top, as_json)
        return
    import tempfile

    from dltune.base.documents import claim
    from dltune.cli import terminal
    from dltune.frameworks.pytorch import RECORDING
    from dltune.frameworks.tensorflow.runtime import lacking_in
    from dltune.job.failures import OutOfMemory
    from dltune.job.launch import Job, require_enabled, require_executable
    from dltune.job.subprocesses import last_words
    from dltune.plan.settings.choices import applied
    from dltune.plan.settings.enforce import Settings
    from dltune.profile.session import Session
    from dltune.profile.session_state import ProfileRequest
    from dltune.system import topology
    from dltune.system.topology import default_interval

    if ops_of and (job or keep_running):
        raise UsageError(
            "--ops-of cannot be combined with a job or --keep-running",
            remedy="leave the command and --keep-running out",
        )
    if batch and not ops_of:
        raise UsageError("--batch needs --ops-of", remedy="add --ops-of PROFILE")
    if not job and not ops_of:
        raise UsageError(
            "no command to profile",
            remedy="add the job's command after --: dltune profile -- python train.py",
        )
    if job:
        require_executable(job[0])
    if plan_path and ops_of:
        raise UsageError("--plan cannot be combined with --ops-of", remedy="leave one of them out")
    require_enabled()
    machine = topology.local()
    if interval is not None and interval > len(machine.cores):
        raise UsageError(
            f"--interval {interval} exceeds the {len(machine.cores)} cores of this machine",
            remedy=f"use --interval {len(machine.cores)} or less",
        )
    events = choice(counters)
    section = _settings(plan_path, machine) if plan_path else None
    around = applied(section, machine, job, os.environ, placed=True)
    with (
        terminal.reported(),
        claim(output, overwrite=overwrite) as file,
        terminal.line() as line,
        _standalone(ops_of, batch) as standalone,
        tempfile.NamedTemporaryFile(prefix="dltune-profile-") as log,
    ):
        job = standalone.command if standalone else job
        roofs, unmeasured = roofs_of(machine, line.say)
        session = Session(
            ProfileRequest(
                machine,
                job,
                interval=interval or default_interval(machine),
                cap=cap,
                counters=events,
                tell=line.tell,
                keep=file.write,
                under=section,
                roofs=roofs,
                lacks=lacking_in,
                notes=unmeasured,
            )
        )
        settings = Settings(around, machine, line.say)
        for sentence in around.left:
            line.say(f"setting not applied: {sentence}")
        # results have stdout for themselves
        to = 2 if verbose or keep_running else log.fileno()
        try:
            with Job(
                around.command(job),
                answer=lambda python: {
                    **settings.answer(python),
                    "plugin": True,
                    "watcher": os.getpid(),
                    "adapters": [RECORDING.under({})],
                },
                greet=session.greet,
                heard=settings.hear,
                environment=around.environment(os.environ),
                stdout=to,
                stderr=to,
            ) as running:
                try:
                    profile = session.run(running)
                except terminal.Ended:
                    session.interrupted()
                    raise
                except (DltuneError, OSError):  # such as a full disk: none of the job's concern
                    if keep_running:
                        _let_go(session, running)
                    raise
                finally:  # before the job is ended, which has an exit code too
                    failed = session.profile is None or running.exit_code
                    if failed and (words := last_words(Path(log.name))):
                        line.say(words)
                if keep_running and running.exit_code is None:
                    what = "incomplete" if profile.partial else "complete"
                    line.say(f"the measurement is {what}; the job continues")
                    _let_go(session, running)
                code = running.exit_code
            if standalone:
                profile = standalone.annotated(profile)
                file.write(profile)
        except terminal.Ended as ended:
            line.say(f"ended by {ended}, together with the job; {_kept(session.profile, output)}")
            sys.exit(ended.exit_code)
        except JobFailed as failure:
            if session.profile:
                line.say(_kept(session.profile, output))
                if isinstance(failure, OutOfMemory) and (saving := _saving(session.profile)):
                    line.say(saving)
            raise
    _show(profile, output, top, as_json)
    if code and (profile.partial or keep_running):
        raise JobFailed(f"the job ended with exit code {code}; {_kept(profile, output)}", code)


def _let_go(session: Session, running: Job) -> None:
    """Until the job has ended by itself."""
    session.release()
    for _ in running.events(1.0):
        pass


def _show(profile: Profile, output: Path, top: int, as_json: bool) -> None:
    if as_json:
        print_json(profile)
    else:
        show_profile(profile, output, top)


def show_profile(profile: Profile, output: Path, top: int) -> None:
    """Print a new profile, and the next command."""
    from dltune.cli.terminal import show_view
    from dltune.report.kinds.profile import view
    from dltune.views import Context

    show_view(view(profile, Context(top=top)))
    next_ = "plan" if any(op.times for op in profile.ops) else "report"
    click.echo(f"\nprofile written to {output}; next: dltune {next_} {output}")


def _imported(trace: Path, output: Path, overwrite: bool) -> Profile:
    """The profile of a trace, written."""
    from dltune.base.documents import claim
    from dltune.profile.trace_import import imported
    from dltune.system import topology

    with claim(output, overwrite=overwrite) as file:
        profile = imported(trace, topology.local())
        file.write(profile)
    return profile


def _settings(path: Path, machine: Machine) -> SettingsPlan:
    """The settings to profile under. Raises UsageError when the plan has none, or is for another
    machine."""
    from dltune.plan.plan import load_plan, require_machine
    from dltune.schemas.settings import SettingsPlan

    plan = load_plan(path)
    section = plan.of(SettingsPlan)
    if section is None:
        raise UsageError(
            f"{path} contains no settings", remedy="create a plan with settings: dltune tune"
        )
    require_machine(plan, machine)
    return section


def choice(asked: str) -> Choice | None:
    """Counters to use. Raises UsageError when they are unknown, or not possible here."""
    if asked == "none":
        return None
    from dltune.profile.climb import Choice
    from dltune.system import memory
    from dltune.system.perf import presets
    from dltune.system.perf.counters import split

    events, why = presets.choose(asked)
    return Choice(asked, why, tuple(split(events)), memory.fault_seconds())


def roofs_of(machine: Machine, say: Callable[[str], None]) -> tuple[Roofs | None, list[str]]:
    """Those of the machine, measured now where they are not known yet, before the job starts; and
    a note where they cannot be."""
    from dltune.system.roofs import measure
    from dltune.system.roofs.measure import unsettled

    try:
        roofs = measure.roofs_of(
            machine, lambda: say("measuring the machine's peak performance (only once)")
        )
    except DltuneError as error:
        return None, [f"the machine's peak performance is unknown: {error}"]
    return roofs, [sentence] if (sentence := unsettled(roofs)) else []


def _standalone(
    ops_of: Path | None, batch: str | None
) -> contextlib.AbstractContextManager[StandaloneJob | None]:
    """The job of --ops-of; None without it."""
    if ops_of is None:
        return contextlib.nullcontext()
    from dltune.profile.standalone import standalone_job

    sizes = between_commas(batch or "")
    if wrong := [size for size in sizes if not size.isdecimal() or int(size) < 1]:
        raise UsageError(
            f"--batch {batch}: {wrong[0]} is not a whole number of at least 1",
            remedy="use a list of batch sizes, such as --batch 16,32",
        )
    return standalone_job(ops_of, [int(size) for size in sizes])


def _saving(profile: Profile) -> str | None:
    """Return how a plan can help a job that ran out of memory."""
    from dltune.plan.planner import load_planner, planner_names

    for name in planner_names():
        with contextlib.suppress(UsageError):  # a planner of another package cannot be loaded
            if sentence := load_planner(name).relief(profile):
                return sentence
    return None


def _kept(profile: Profile | None, output: Path) -> str:
    if profile is None:
        return "there are no results yet"
    return f"the results are in {output}" + (" (incomplete)" if profile.partial else "")
