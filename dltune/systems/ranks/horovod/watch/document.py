"""Documents of a watch's observations of ranks, also for several hosts and during a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from dltune import __version__
from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.findings.evidence import Evidence
from dltune.findings.rule import apply_rules
from dltune.frameworks.capabilities import Framework
from dltune.job.rank_layout import is_rank
from dltune.system import kernel_files
from dltune.system.proc import process, stat
from dltune.systems.ranks.horovod import schema
from dltune.systems.ranks.horovod.schema import WRITER, Horovod, Rank, Role, ThreadUse, Timeline
from dltune.systems.ranks.horovod.watch import ranks
from dltune.systems.ranks.horovod.watch.ranks import RankSeen, ThreadSeen
from dltune.systems.ranks.horovod.watch.watch import Watch

BUILD = (
    "build Horovod for this TensorFlow: HOROVOD_WITH_TENSORFLOW=1 pip install --no-cache-dir "
    "--force-reinstall horovod"
)


def assemble(
    watch: Watch, command: Sequence[str], timeline: Timeline | None, partial: bool
) -> Horovod:
    """Return the document of a watch, with its findings. Raises UsageError when it saw no rank."""
    seen = watch.of_job()
    if not seen:
        raise nothing(watch)
    host = seen[0].identity.host
    return report_of(
        command=tuple(command),
        cores={host: ranks.cores()},
        partial=partial,
        members=tuple(sorted((_rank(one, watch) for one in seen), key=lambda rank: rank.rank)),
        timeline=timeline,
        watching=watch.cpu / max(watch.ended - watch.began, 1e-9),
    )


def report_of(
    *,
    command: tuple[str, ...],
    cores: dict[str, int],
    partial: bool,
    members: tuple[Rank, ...],
    timeline: Timeline | None,
    watching: float | None = None,
) -> Horovod:
    """A document with today's date, and its findings."""
    from dltune.system.topology import local

    machine = local()
    report = Horovod(
        schema=schema.SCHEMA,
        created=documents.now(),
        dltune=__version__,
        command=command,
        machine=machine.fingerprint,
        machine_name=machine.name,
        cores=cores,
        partial=partial,
        ranks=members,
        timeline=timeline,
        findings=(),
        watching=watching,
    )
    return msgspec.structs.replace(report, findings=apply_rules(Evidence(reports=(report,))))


def cycle_time(watch: Watch) -> float:
    """Seconds of HOROVOD_CYCLE_TIME in the job; Horovod's own where it does not say."""
    return ranks.cycle_time(next((seen.settings for seen in watch.of_job()), {}))


def nothing(watch: Watch) -> UsageError:
    """Why no rank was seen."""
    if watch.without:
        reason = next(iter(watch.without.values()))
        return UsageError(
            f"no rank was found: the job cannot import horovod.tensorflow ({reason})",
            remedy=BUILD,
        )
    if watch.denied:
        pid, user = next(iter(watch.denied.items()))
        return UsageError(
            f"pid {pid} belongs to {user}, whose libraries and stacks this user may not read",
            remedy=f"run dltune horovod-report as {user}, or as root with CAP_SYS_PTRACE",
        )
    root, others = watch.tree.root, len(watch.members) - 1
    under = f" and its {others} descendant{'s' * (others > 1)} have" if others > 0 else " has"
    why = "".join(f"; {sentence}" for sentence in sorted(watch.amiss))
    return UsageError(
        f"no rank was found in {watch.ended - watch.began:.0f} s: pid {root}{under} loaded neither "
        f"Horovod nor PyTorch as one of several ranks{why}",
        remedy=BUILD
        if why
        else "watch a job of several ranks (horovodrun, mpirun, torchrun); with --pid, name a rank "
        "or its launcher, and watch longer with --seconds",
    )


def _rank(seen: RankSeen, watch: Watch) -> Rank:
    identity, init = seen.identity, seen.init
    place = init or identity
    seconds = max(seen.until - seen.since, 1e-9)
    threads = [
        _use(tid, thread, *_role(seen, tid, thread), seconds)
        for (tid, _), thread in seen.threads.items()
    ]
    evidence: list[schema.Evidence] = []
    if init and init.threads:
        evidence.append("init")
    if seen.stack:
        evidence.append("stack" if seen.cycles else "name")
    # a rank's message about its end comes before the end
    failed = watch.failed.get(seen.pid)
    failed_at = failed.at if failed else seen.ended_at or 0.0
    own = [t.last.cpus for k, t in seen.threads.items() if k[0] == seen.pid]
    cpus = max(map(kernel_files.parse_cpulist, own), default=frozenset())
    return Rank(
        rank=place.rank,
        size=place.size,
        local_rank=place.local_rank,
        local_size=place.local_size,
        host=identity.host,
        pid=seen.pid,
        seconds=seconds,
        controller=place.controller,
        horovod=identity.library.version if seen.cycles else None,
        pytorch=None if seen.cycles else identity.library.version or "?",
        mpi=identity.mpi if place.controller == "mpi" else None,
        settings=seen.settings,
        evidence=tuple(evidence),
        background=seen.background if seen.background in {t.tid for t in threads} else None,
        cpu=max(0.0, seen.cpu[1] - seen.cpu[0]) / seconds,
        cpus=tuple(sorted(cpus)),
        bound=bool(cpus) and frozenset(cpus) < ranks.node(),
        threads=tuple(sorted(threads, key=lambda use: -use.cpu)),
        cycles=seen.sleeps.cycles() if seen.sleeps else None,
        ended=None if seen.ended_at is None else seen.ending.code,
        ended_after=None if seen.ended_at is None else failed_at - watch.began,
        error=failed.error if failed else None,
        stuck=watch.stuck.get(seen.pid),
        unseen=tuple(_unseen(seen)),
    )


def _role(seen: RankSeen, tid: int, thread: ThreadSeen) -> tuple[Role, str]:
    """A thread's role and name, as its stack says, else as the job does."""
    name = thread.identity.name if thread.identity else thread.last.stat.name
    if tid == seen.background:
        return "background", name
    if thread.identity and thread.identity.role != "background":
        return thread.identity.role, name
    if thread.identity and not seen.cycles:
        return "helper", name
    if seen.init and tid in seen.init.threads:
        # of those that hvd.init() adds only the timeline's writer never rests
        writes = thread.identity is None and "HOROVOD_TIMELINE" in seen.settings
        return "helper", WRITER if writes else name
    return "other", name


def _use(tid: int, thread: ThreadSeen, role: Role, name: str, seconds: float) -> ThreadUse:
    used = thread.used
    ticks = used.stat.user + used.stat.kernel
    return ThreadUse(
        tid=tid,
        name=name,
        role=role,
        cpu=used.cpu / seconds,
        # the scheduler counts nanoseconds, but reports user and system in ticks
        user=used.cpu * (used.stat.user / ticks if ticks else 1.0) / seconds,
        system=used.cpu * (used.stat.kernel / ticks if ticks else 0.0) / seconds,
        wait=None if used.queued is None else used.queued / seconds,
        voluntary=used.voluntary / seconds,
        involuntary=used.involuntary / seconds,
        cpus=tuple(sorted(kernel_files.parse_cpulist(used.cpus))),
        born=thread.born,
    )


def _unseen(seen: RankSeen) -> Iterator[str]:
    if seen.refused:
        yield f"thread roles and the background thread's stack cannot be read: {seen.refused}"
    library = seen.identity.library
    if not library.loop and seen.cycles:
        yield (
            "the background thread cannot be identified by its stack: Horovod's library has no "
            f"symbols ({library.path})"
        )
    unknown = ", ".join(
        str(tid)
        for tid, thread in seen.current()
        if thread.identity is None and _role(seen, tid, thread)[0] == "other"
    )
    if unknown and not seen.refused:
        what = "the background thread was" if seen.background is None else "some roles were"
        yield (
            f"{what} not identified: only stacks of sleeping threads can be read, and these "
            f"threads never slept: {unknown}"
        )
    elif library.loop and seen.background is None:
        yield "no background thread was found: hvd.init() has not run, or Horovod was shut down"
    elif not seen.cycles and seen.background is None:
        yield (
            "no communication thread was found: torch.distributed has not started with gloo, or "
            "has ended"
        )
    if seen.init and seen.init.threads and seen.stack not in (None, seen.init.threads[0]):
        yield (
            f"the background thread is uncertain: by its stack it is {seen.stack}, but hvd.init() "
            f"started {seen.init.threads[0]} first; the figures are those of {seen.stack}"
        )
    if seen.sleeps and seen.sleeps.refused:
        yield f"cycles and oversleep are unknown: {seen.sleeps.refused}; --timeline has them too"


def merged(paths: Sequence[Path]) -> Horovod:
    """Return all ranks of all reports, with their common findings.

    Raises UsageError when one cannot be read, when a rank is in two of them, when they disagree on
    how many ranks there are, or when two have a timeline.

    The reports of ranks on several hosts become one.
    """
    reports = [(path, schema.load(path)) for path in paths]
    owner: dict[int, Path] = {}
    sizes: dict[int, Path] = {}
    for path, report in reports:
        for rank in report.ranks:
            if rank.rank in owner:
                raise UsageError(
                    f"rank {rank.rank} is in both {owner[rank.rank]} and {path}",
                    remedy="merge reports of one job, one from each host",
                )
            owner[rank.rank] = path
            sizes.setdefault(rank.size, path)
    if len(sizes) > 1:
        told = " but ".join(f"{path} is of a job of {size} ranks" for size, path in sizes.items())
        raise UsageError(told, remedy="merge reports of one job, one from each host")
    timelines = [(path, report.timeline) for path, report in reports if report.timeline]
    if len(timelines) > 1:
        raise UsageError(
            f"{timelines[0][0]} and {timelines[1][0]} both have a timeline",
            remedy="use --timeline only on the host of rank 0, which writes it",
        )
    first = reports[0][1]
    whole = report_of(
        command=first.command,
        cores={host: cores for _, one in reports for host, cores in one.cores.items()},
        partial=any(report.partial for _, report in reports),
        members=tuple(sorted((r for _, one in reports for r in one.ranks), key=lambda r: r.rank)),
        timeline=timelines[0][1] if timelines else None,
    )
    return msgspec.structs.replace(whole, machine=first.machine, machine_name=first.machine_name)


def start(root: int) -> RankProbe | None:
    """Return a probe for the job with this root process if it has several ranks."""
    tree = stat.Tree(root)
    return RankProbe(tree) if any(map(_is_a_rank, tree.refresh())) else None


class RankProbe:
    """Watches the threads of each rank until `end`.

    It observes the ranks of a job while `dltune diagnose` watches it.
    """

    def __init__(self, tree: stat.Tree) -> None:
        self._watch = Watch(tree)
        self._watch.start()

    def end(self, framework: Framework) -> Horovod | None:
        """Return the report on the ranks. A framework that exchanges gradients itself needs no
        Horovod, so ranks without it are no reason there."""
        self._watch.stop()
        with self._watch as watch:
            try:
                return assemble(watch, (), None, False)
            except UsageError:
                if framework.exchanges_buckets:
                    return None
                raise


def _is_a_rank(pid: int) -> bool:
    """Return whether a process is one of several ranks, as far as its environment is readable."""
    try:
        return is_rank(process.environment(pid))
    except OSError:
        return False
