"""A diagnosis of a job that is started here, of one that runs, or of earlier documents."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from dltune.analysis.roofline import analyse
from dltune.base.errors import DltuneError, UsageError
from dltune.extensions import find
from dltune.findings.diagnosis import diagnose
from dltune.findings.evidence import Evidence
from dltune.job.launch import Job
from dltune.job.subprocesses import last_words
from dltune.profile.climb import Choice
from dltune.profile.session_state import Progress
from dltune.schemas.diagnosis import Diagnosis
from dltune.schemas.io import Io
from dltune.schemas.machine import Machine, Roofs
from dltune.schemas.profile import Profile
from dltune.system import topology
from dltune.system.proc import process, stat
from dltune.views import Loaded
from dltune.watch.job_watch import JobWatch, unsettled
from dltune.watch.live_job import Observing

PROCESS_SECONDS = 20.0


@dataclass
class Examination:
    """A diagnosis, the documents that it is based on, by kind, and the job's `command` as far as it
    is known.

    `ended`: the interrupt that ended the examination; `code`: the exit code of a job that ended by
    itself; `goes_on`: True if the job continues.
    """

    diagnosis: Diagnosis
    documents: tuple[tuple[str, msgspec.Struct], ...] = ()
    command: tuple[str, ...] = ()
    ended: KeyboardInterrupt | None = None
    code: int | None = None
    goes_on: bool = False


@contextlib.contextmanager
def examine_job(
    command: Sequence[str],
    machine: Machine,
    budget: float,
    counters: Choice | None,
    roofs: Roofs | None,
    lacks: Callable[[int], tuple[str, ...] | None],
    tell: Callable[[Progress], None],
    say: Callable[[str], None],
    *,
    keep_running: bool,
    verbose: bool,
) -> Iterator[Examination]:
    """Start a job, observe it for `budget` seconds, and end it, unless it is to keep running.

    Yields the examination as soon as it is complete. If the job keeps running, the end of the
    block waits for it, also after an error of dltune; then `code` is known. `tell` receives the
    progress, and `say` the last output of a job that failed. The job's output goes to stderr if
    `verbose` is True or the job keeps running.

    Raises the reason if nothing was observed of the job.
    """
    began = time.monotonic()
    problem: DltuneError | None = None
    ended: KeyboardInterrupt | None = None
    with tempfile.NamedTemporaryFile(prefix="dltune-") as log, contextlib.ExitStack() as stack:
        observing = Observing(
            machine, command, budget, counters, tell, roofs, lacks, ends=not keep_running
        )
        # stdout is only for results
        to = 2 if verbose or keep_running else log.fileno()
        job = stack.enter_context(
            Job(
                command,
                answer=lambda _: {"plugin": True, "watcher": os.getpid()},
                greet=observing.greet,
                stdout=to,
                stderr=to,
            )
        )
        try:
            problem = observing.run(job)
        except KeyboardInterrupt as interrupt:
            ended = interrupt
        seen = observing.seen()
        if job.exit_code and (words := last_words(Path(log.name))):
            say(words)
        code = job.exit_code  # before dltune ends the job, which sets a code too
        goes_on = keep_running and ended is None and code is None
        if not goes_on:
            stack.close()
        nothing = seen.observation is None and seen.profile is None
        why = (ended or problem) if nothing else None
        if why is not None and not goes_on:
            raise why
        no_step = str(problem) if problem else None
        seconds = time.monotonic() - began
        examination = _examined(seen, shlex.join(command), seconds, no_step, ended)
        examination.command = tuple(command)
        examination.code, examination.goes_on = code, goes_on
        try:
            if why is not None:
                say("no diagnosis; the job continues")
                raise why
            yield examination
        except (DltuneError, OSError):  # these must not end the job
            if goes_on:
                _wait(job)
            raise
        if goes_on:
            examination.code = _wait(job)


def _wait(job: Job) -> int | None:
    for _ in job.events(1.0):
        pass
    return job.exit_code


def examine_process(pid: int, seconds: float, tell: Callable[[str], None]) -> Examination:
    """Watch a running job from outside for so many seconds, or until it ends. `tell` is called once
    an interrupt no longer loses what was seen."""
    ended = None
    # not a launcher or a shell, but the process that works
    works = max(stat.descendants(pid), key=lambda one: process.cpu_seconds(one) or 0.0)
    watch = JobWatch(pid, works, {})
    try:
        tell(f"observing pid {pid} for {seconds:.0f} s")
        while watch.seconds < seconds and watch.watching:
            time.sleep(0.2)
    except KeyboardInterrupt as interrupt:
        ended = interrupt
    seen = watch.end(f"pid {pid}")
    if seen.observation:
        seen = replace(seen, observation=unsettled(seen.observation))
    why = "--pid cannot measure steps; start the job with `dltune diagnose -- CMD`"
    return _examined(seen, f"pid {pid}", watch.seconds, why, ended)


def examine_documents(loaded: Sequence[Loaded]) -> Examination:
    """Use earlier measurements, or a saved diagnosis again.

    Raises UsageError if two documents are of one kind, one cannot be used, or a diagnosis is not
    alone.
    """
    by_kind = itertools.groupby(sorted(loaded, key=lambda one: one.kind), lambda one: one.kind)
    for kind, several in by_kind:
        first, *more = several
        if more:
            raise UsageError(
                f"{first.path} and {more[0].path} are both {kind} documents",
                remedy="pass one file of each kind; `dltune compare` compares two profiles",
            )
    seen = Evidence()
    for one in loaded:
        document = one.document
        if isinstance(document, Profile):
            seen = replace(seen, profile=analyse(document))
        elif isinstance(document, Io):
            seen = replace(seen, io=document)
        elif find("documents", one.kind).is_evidence:
            seen = replace(seen, reports=(*seen.reports, document))
        elif not isinstance(document, Diagnosis):
            raise UsageError(
                f"{one.path} is a {one.kind} document, which diagnose cannot use",
                remedy="pass a profile, reports of io-report and horovod-report, or a diagnosis",
            )
        elif len(loaded) > 1:  # it is based on evidence that is in no file
            raise UsageError(
                f"{one.path} is a diagnosis, which cannot be combined with other files",
                remedy="pass it alone, or use `dltune report` to show all files on one page",
            )
        else:
            return Examination(document)
    return _examined(seen, " ".join(str(one.path) for one in loaded), 0.0, None, None)


def _examined(
    seen: Evidence,
    subject: str,
    seconds: float,
    no_step: str | None,
    ended: KeyboardInterrupt | None,
) -> Examination:
    documents: list[tuple[str, msgspec.Struct]] = []
    machine = topology.local() if seen.observation else None
    if seen.profile:
        machine = seen.profile.profile.machine
        documents.append(("profile", seen.profile.profile))
    if seen.io:
        documents.append(("io", seen.io))
    documents += [(_kind(report), report) for report in seen.reports]
    command = seen.profile.profile.command if seen.profile else ()
    partial = f"stopped by {ended}" if ended else None
    diagnosis = diagnose(seen, subject, seconds, no_step, partial, machine)
    return Examination(diagnosis, tuple(documents), command, ended)


def _kind(document: msgspec.Struct) -> str:
    """Return the kind in the document's schema, such as "horovod"."""
    kind, _, _ = str(getattr(document, "schema")).partition("/")  # noqa: B009
    return kind.removeprefix("dltune.")
