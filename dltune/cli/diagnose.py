"""`dltune diagnose`."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dltune.base.errors import DltuneError, JobFailed, UsageError
from dltune.cli import results
from dltune.plan.duration import Duration

if TYPE_CHECKING:
    import msgspec

    from dltune.cli.terminal import Ended
    from dltune.findings.evidence import Evidence
    from dltune.schemas.diagnosis import Diagnosis
    from dltune.schemas.plan import Plan

PID_SECONDS = 20.0


@click.command(
    "diagnose", epilog="\b\nExample:\n  dltune diagnose -o diagnosis.html -- python train.py"
)
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
    type=click.Path(path_type=Path),
    help="Write the result to this file: an HTML page, or data if the name ends in .json.",
)
@click.option(
    "--plan",
    "plan_path",
    type=click.Path(path_type=Path),
    help="Write the settings that dltune can apply to this plan, for `dltune run --plan`.",
)
@click.option("--overwrite", is_flag=True, help="Replace existing output files.")
@click.option(
    "--pid",
    type=click.IntRange(min=1),
    metavar="PID",
    help="Observe this running process and its children.",
)
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
    from dltune.findings.diagnosis import next_step
    from dltune.report.kinds.diagnosis import view

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

        def tell(looked: Looked) -> None:
            if kept and _is_page(output):
                kept.write_bytes(looked.page())
            elif kept:
                kept.write(looked.diagnosis)
            chosen = _plan(looked) if plan else None
            if plan and chosen:
                plan.write(chosen)
            written = [output, plan_path if chosen else None]
            results.tell(looked.diagnosis, view, as_json=as_json, written=written)
            if plan_path and not chosen:
                stays = f"; {plan_path} is unchanged" if plan_path.exists() else ""
                click.echo(f"no plan written: dltune can apply none of the fixes{stays}", err=True)
            words = next_step(looked.diagnosis, looked.command, plan_path if chosen else None)
            if words and not as_json:
                click.echo(f"\n{words}")

        if pid is not None:
            looked = _running(pid, min(budget, PID_SECONDS))
            tell(looked)
        elif measured:
            looked = _files([Path(argument) for argument in job])
            tell(looked)
        else:
            looked = _job(job, budget, tell, keep_running=keep_running, verbose=verbose)
    if looked.diagnosis.partial:
        sys.exit(looked.code)
    if looked.code:
        raise JobFailed(
            f"the job ended with exit code {looked.code}; the diagnosis covers the time until then",
            looked.code,
        )


@dataclass(frozen=True)
class Looked:
    """A diagnosis, the documents that it is based on, the job's `command` as far as it is known,
    and the exit code of a job that ended, or of the signal that ended the watch."""

    diagnosis: Diagnosis
    documents: tuple[tuple[str, msgspec.Struct], ...] = ()
    command: tuple[str, ...] = ()
    code: int = 0

    def page(self) -> bytes:
        from dltune.report.page import page
        from dltune.views import Context, Loaded

        every = (("diagnosis", self.diagnosis), *self.documents)
        return page(Context([Loaded(Path(name), f"dltune.{name}", of, name) for name, of in every]))


def _is_page(output: Path | None) -> bool:
    return output is not None and not output.name.endswith((".json", ".json.gz"))


def _job(
    job: tuple[str, ...],
    budget: float,
    tell: Callable[[Looked], None],
    *,
    keep_running: bool,
    verbose: bool,
) -> Looked:
    """Diagnosis of a job that is started; `tell` is called with it once the job has ended, or
    goes on. Raises the reason where nothing was seen of it."""
    import tempfile
    import time

    from dltune.cli import terminal
    from dltune.cli.profile import choice, roofs_of
    from dltune.frameworks.tensorflow.runtime import lacking_in
    from dltune.job.launch import Job, require_enabled, require_executable
    from dltune.job.subprocesses import last_words
    from dltune.system import topology
    from dltune.watch.session import Observing

    require_enabled()
    require_executable(job[0])  # before the machine's roofs are measured
    error = ended = None
    began = time.monotonic()
    with tempfile.NamedTemporaryFile(prefix="dltune-") as log, contextlib.ExitStack() as stack:
        with terminal.line() as line:
            machine = topology.local()
            roofs, _ = roofs_of(machine, line.say)
            observing = Observing(
                machine,
                job,
                budget,
                choice("auto"),
                line.tell,
                roofs,
                lacking_in,
                ends=not keep_running,
            )
            # results have stdout for themselves
            to = 2 if verbose or keep_running else log.fileno()
            running = stack.enter_context(
                Job(
                    job,
                    answer=lambda _: {"plugin": True, "watcher": os.getpid()},
                    greet=observing.greet,
                    stdout=to,
                    stderr=to,
                )
            )
            try:
                error = observing.run(running)
            except terminal.Ended as signal:
                ended = signal
            seen = observing.seen()
            if running.exit_code and (words := last_words(Path(log.name))):
                line.say(words)
            code = running.exit_code  # before it is ended, which has one too
            goes_on = keep_running and ended is None and code is None
            if not goes_on:
                stack.close()
        why: BaseException | None = ended or error
        nothing = why is not None and seen.observation is None and seen.profile is None
        seconds, no_step = time.monotonic() - began, str(error) if error else None
        looked = replace(_looked(seen, shlex.join(job), seconds, no_step, ended), command=job)
        try:
            if not nothing:
                tell(looked)
        except (DltuneError, OSError) as trouble:
            if not goes_on:
                raise
            why, nothing = trouble, True  # the job is not to end for it
        if goes_on:
            with contextlib.suppress(OSError):
                click.echo("diagnosis complete; the job continues", err=True)
            for _ in running.events(1.0):
                pass
            code = running.exit_code
    if nothing:
        assert why is not None
        raise why
    return replace(looked, code=ended.exit_code if ended else code or 0)


def _running(pid: int, seconds: float) -> Looked:
    """Diagnosis of a running job from outside."""
    import time

    from dltune.cli import terminal
    from dltune.system.proc import process, stat
    from dltune.watch.job_watch import JobWatch, unsettled

    ended = None
    with terminal.line() as line:
        # a launcher, or a shell, is not what works
        works = max(stat.descendants(pid), key=lambda one: process.cpu_seconds(one) or 0.0)
        watch = JobWatch(pid, works, {})
        line.show(f"observing pid {pid} for {seconds:.0f} s", ())
        try:
            while watch.seconds < seconds and watch.watching:
                time.sleep(0.2)
        except terminal.Ended as signal:
            ended = signal
        seen = watch.end(f"pid {pid}")
    if seen.observation:
        seen = replace(seen, observation=unsettled(seen.observation))
    why = "--pid cannot measure steps; start the job with `dltune diagnose -- CMD`"
    looked = _looked(seen, f"pid {pid}", watch.seconds, why, ended)
    return replace(looked, code=ended.exit_code) if ended else looked


def _files(paths: Sequence[Path]) -> Looked:
    """Diagnosis from earlier documents, or a saved diagnosis again."""
    from itertools import groupby

    from dltune.analysis.roofline import analyse
    from dltune.extensions import find
    from dltune.findings.evidence import Evidence
    from dltune.report.page import read
    from dltune.schemas.diagnosis import Diagnosis
    from dltune.schemas.io import Io
    from dltune.schemas.profile import Profile

    every = read(paths).documents
    for kind, several in groupby(sorted(every, key=lambda one: one.kind), lambda one: one.kind):
        first, *more = several
        if more:
            raise UsageError(
                f"{first.path} and {more[0].path} are both {kind} documents",
                remedy="pass one file of each kind; `dltune compare` compares two profiles",
            )
    seen = Evidence()
    for loaded in every:
        document = loaded.document
        if isinstance(document, Profile):
            seen = replace(seen, profile=analyse(document))
        elif isinstance(document, Io):
            seen = replace(seen, io=document)
        elif find("documents", loaded.kind).is_evidence:
            seen = replace(seen, reports=(*seen.reports, document))
        elif not isinstance(document, Diagnosis):
            raise UsageError(
                f"{loaded.path} is a {loaded.kind} document, which diagnose cannot use",
                remedy="pass a profile, reports of io-report and horovod-report, or a diagnosis",
            )
        elif len(every) > 1:  # it is based on evidence that is in no file
            raise UsageError(
                f"{loaded.path} is a diagnosis, which cannot be combined with other files",
                remedy="pass it alone, or use `dltune report` to show all files on one page",
            )
        else:
            return Looked(document)
    return _looked(seen, " ".join(map(str, paths)), 0.0, None, None)


def _looked(
    seen: Evidence, subject: str, seconds: float, no_step: str | None, ended: Ended | None
) -> Looked:
    from dltune.findings.diagnosis import diagnose
    from dltune.system import topology

    partial = f"stopped by {ended}" if ended else None
    documents: list[tuple[str, msgspec.Struct]] = []
    machine = topology.local() if seen.observation else None
    if seen.profile:
        machine = seen.profile.profile.machine
        documents.append(("profile", seen.profile.profile))
    if seen.io:
        documents.append(("io", seen.io))
    documents += [(_name(report), report) for report in seen.reports]
    command = seen.profile.profile.command if seen.profile else ()
    diagnosis = diagnose(seen, subject, seconds, no_step, partial, machine)
    return Looked(diagnosis, tuple(documents), command)


def _name(document: Any) -> str:
    """Return the name in the document's schema, such as "horovod"."""
    kind, _, _ = document.schema.partition("/")
    return str(kind).removeprefix("dltune.")


def _plan(looked: Looked) -> Plan | None:
    """Plan of the fixes that dltune can apply by itself; None if there are none."""
    from dltune.findings.diagnosis import make_fix_plan
    from dltune.plan.plan import new_plan
    from dltune.system import topology

    section = make_fix_plan(looked.diagnosis, looked.command)
    if section is None:
        return None
    machine = looked.diagnosis.machine or topology.local()
    return new_plan(machine, sections={"settings": section})
