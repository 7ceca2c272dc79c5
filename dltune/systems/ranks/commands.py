"""Command `dltune horovod-report`, and the view of watched ranks on a terminal."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.base.errors import JobFailed, UsageError
from dltune.base.formatting import Table, columns
from dltune.cli.options import PATH, example, pid_option, report_options, seconds_option
from dltune.cli.results import claimed, report_on_job, require_apart

if TYPE_CHECKING:
    from dltune.systems.ranks.horovod.schema import Horovod
    from dltune.systems.ranks.horovod.watch.ranks import RankSeen
    from dltune.systems.ranks.horovod.watch.watch import Watch


PID_SECONDS = 20.0
# a tenth of a rank's claim to a core, and still soon enough to read the kernel's records
COURTEOUS = 10


@click.command(
    "horovod-report", epilog=example("dltune horovod-report -- horovodrun -np 2 python train.py")
)
@pid_option("Watch this running rank, or all ranks of this launcher.")
@click.option(
    "--timeline",
    type=PATH,
    metavar="FILE",
    help="Add Horovod's timeline from FILE to the report; with CMD, rank 0 writes it there first.",
)
@click.option(
    "--merge", is_flag=True, help="Merge reports, one from each host: give their files, not CMD."
)
@seconds_option("Stop after SECONDS.  [default: at the job's end; with --pid, 20]")
@report_options(overwrite="Replace output files that exist.")
def horovod_report(
    pid: int | None,
    timeline: Path | None,
    merge: bool,
    seconds: float | None,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
    job: tuple[str, ...],
) -> None:
    """Report how communication threads compete with a multi-rank job for CPU time.

    The communication threads are Horovod's background threads, or gloo's in PyTorch DDP. dltune
    starts CMD (horovodrun, mpirun, torchrun) unmodified, or watches running ranks (--pid), and
    never stops them. It reports each thread's role, CPU time and wait for a core, then findings
    with suggested fixes.
    """
    from dltune.systems.ranks.horovod.view import view

    if (pid is not None) + bool(job) > 1 or not (pid is not None or job or timeline):
        raise UsageError(
            "give exactly one of: a command after --, --pid, --merge, or --timeline alone",
            remedy="try: dltune horovod-report -- horovodrun -np 2 python train.py",
        )
    require_apart((timeline, *(map(Path, job) if merge else ())), [output])

    def make() -> tuple[Horovod, int]:
        if merge:
            return _merge(job, timeline), 0
        if pid is not None:
            return _watch_process(pid, seconds or PID_SECONDS, timeline), 0
        if job:
            return _watch_job(job, seconds, timeline, overwrite)
        assert timeline is not None
        return _read(timeline), 0

    report_on_job(make, view, output, overwrite=overwrite, as_json=as_json)


def _merge(files: tuple[str, ...], timeline: Path | None) -> Horovod:
    from dltune.systems.ranks.horovod.watch.document import merged

    if len(files) < 2 or timeline is not None:
        raise UsageError(
            "--merge needs at least two reports, and no --timeline",
            remedy="try: dltune horovod-report --merge a.json b.json -o all.json",
        )
    return merged([Path(name) for name in files])


def _read(path: Path) -> Horovod:
    from dltune.systems.ranks.horovod import timeline
    from dltune.systems.ranks.horovod.watch.document import report_of

    return report_of(command=(), cores={}, partial=False, members=(), timeline=timeline.read(path))


def _watch_process(pid: int, seconds: float, timeline: Path | None) -> Horovod:
    from dltune.system.proc import process
    from dltune.system.proc.stat import Tree
    from dltune.systems.ranks.horovod.watch.watch import Watch

    with Watch(Tree(pid)) as watch:
        command = tuple(process.command(pid).split(" "))
        partial = _run(watch, f"pid {pid}", seconds, lambda: watch.shut_out)
        return _assembled(watch, command, timeline, partial)


def _watch_job(
    job: tuple[str, ...], seconds: float | None, timeline: Path | None, overwrite: bool
) -> tuple[Horovod, int]:
    """The report, and the job's exit code; 0 for a job that dltune ended."""
    import shlex

    from dltune.job.launch import Job, require_executable
    from dltune.system.proc.stat import Tree
    from dltune.systems.ranks.horovod.watch.watch import Watch

    require_executable(job[0])
    environment = {}
    if timeline is not None:
        environment = {
            "HOROVOD_TIMELINE": str(timeline.resolve()),
            "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        }
    # the job's own output goes to stderr: results have stdout for themselves
    with (
        contextlib.ExitStack() as after,
        _anew(timeline, overwrite),
        Job(job, stdout=2, environment=environment, answer=lambda _: {"plugin": False}) as running,
    ):
        # its handles outlast the job, which listens for the ends of ranks
        watch = after.enter_context(Watch(Tree(running.pid)))
        heard_of: set[int] = set()

        def wait(seconds: float) -> None:
            for rank in watch.ranks.values():
                if rank.pid not in heard_of:
                    heard_of.add(rank.pid)
                    running.watch(rank.ending.fileno(), watch.note_endings)
            for event in running.events(seconds):
                if event is None:
                    break
                watch.hear(event.message)

        partial = _run(watch, shlex.join(job), seconds, lambda: running.exit_code is not None, wait)
        code = 0 if partial else running.exit_code or 0
        try:
            return _assembled(watch, job, timeline, partial), code
        except UsageError as error:
            if not code:
                raise
            raise JobFailed(
                f"the job ended with exit code {code}; {error}", code, remedy=error.remedy
            ) from None


@contextlib.contextmanager
def _anew(timeline: Path | None, overwrite: bool) -> Iterator[None]:
    """Claim the timeline's path for a job that is to write it, and remove another job's file
    there."""
    with claimed(timeline, overwrite=overwrite) as writes:
        if writes:
            writes.path.unlink(missing_ok=True)
        yield


def _run(
    watch: Watch,
    subject: str,
    seconds: float | None,
    over: Callable[[], bool],
    wait: Callable[[float], object] | None = None,
) -> bool:
    """Watch until the end; True if a signal ended the watch."""
    from dltune.cli import terminal
    from dltune.cli.terminal import live

    os.nice(COURTEOUS)  # ranks that fill the cores go first
    with live(
        f"watching {subject}",
        lambda: watched(watch),
        lambda: [running(watch)],
    ) as tell:
        try:
            watch.run(seconds, over, tell, wait)
        except terminal.Ended:
            return True
        return False


def _assembled(watch: Watch, command: tuple[str, ...], path: Path | None, partial: bool) -> Horovod:
    """Return the report. The timeline's cycles are judged by the ranks' settings. The watch's
    figures are used where the timeline cannot be read."""
    from dltune.systems.ranks.horovod import timeline
    from dltune.systems.ranks.horovod.watch.document import assemble, cycle_time

    told = None
    try:
        told = timeline.read(path, cycle_time=cycle_time(watch)) if path else None
    except UsageError as error:
        click.echo(f"dltune: warning: the report has no timeline: {error}", err=True)
    return assemble(watch, command, told, partial)


def watched(watch: Watch) -> str:
    """Return a line about the watch so far."""
    seen = watch.of_job()
    found = sum(rank.background is not None for rank in seen)
    stuck = "".join(
        f"; rank {rank.identity.rank} hangs: {watch.stuck[rank.pid]}"
        for rank in seen
        if rank.pid in watch.stuck
    )
    return (
        f"{watch.ended - watch.began:.0f} s: {len(seen)} rank{'s' * (len(seen) != 1)}, "
        f"{found} background thread{'s' * (found != 1)} found, {len(watch.members)} "
        f"processes{stuck}"
    )


def running(watch: Watch) -> Table:
    """Return the use of the CPU by each rank's threads so far."""
    heads = (
        *("rank", "pid", "CPU", "background thread", "its CPU", "its wait for a core"),
        *("compute CPU", "input CPU"),
    )
    rows = [_row(rank) for rank in watch.of_job()]
    return Table("", columns(*(f">{head}" for head in heads)), rows)


def _row(rank: RankSeen) -> tuple[str, ...]:
    seconds = max(rank.until - rank.since, 1e-9)
    roles = {"compute": 0.0, "input": 0.0}
    cpu = wait = None
    for (tid, _), thread in rank.threads.items():
        used = thread.used
        if tid == rank.background:
            cpu, wait = used.cpu / seconds, (used.queued or 0.0) / seconds
        elif thread.identity and thread.identity.role in roles:
            roles[thread.identity.role] += used.cpu / seconds
    return (
        str(rank.identity.rank),
        str(rank.pid) if rank.ended_at is None else f"{rank.pid} ended",
        f"{(rank.cpu[1] - rank.cpu[0]) / seconds:.0%}",
        str(rank.background or "not found"),
        "" if cpu is None else f"{cpu:.1%}",
        "" if wait is None else f"{wait:.1%}",
        f"{roles['compute']:.0%}",
        f"{roles['input']:.0%}",
    )
