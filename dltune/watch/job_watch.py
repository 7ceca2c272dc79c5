"""A watch of a job for some seconds in the background, while dltune receives its messages.

Probes of systems and other packages observe the job at the same time. A test distinguishes steady
growth of memory from an allocator that still fills.

A probe samples in a thread of its own, apart from the watch's loop: it can block. The probe of
ranks waits for py-spy, for up to 5 seconds if cores are busy, and the loop samples waits for
storage every 20 ms.
"""

from __future__ import annotations

import itertools
import os
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import msgspec

from dltune.base.errors import UsageError
from dltune.extensions import extensions, load
from dltune.findings.evidence import Evidence
from dltune.findings.memory_use import MIN_WATCH, may_be_filling
from dltune.frameworks.capabilities import Framework, framework
from dltune.job.failures import loaded
from dltune.job.launch import Job
from dltune.job.rank_layout import local_rank
from dltune.job.record import Record
from dltune.schemas.diagnosis import Graphs, Observation, Process
from dltune.system import kernel_files
from dltune.system.proc import process, stat
from dltune.system.proc.stat import TICK
from dltune.watch import stack_samples
from dltune.watch.files import io_document
from dltune.watch.files.io_watch import IoProcess, Watch
from dltune.watch.host import HostWatch
from dltune.watch.stack_samples import Looks


class Probe(Protocol):
    """An observer of one aspect of a job, which a system or another package adds to dltune's core.
    It runs in a thread of its own, from when it is made."""

    def end(self, framework: Framework) -> msgspec.Struct | None:
        """Stop, and return a document for the rules (`Evidence.report`); None: there was nothing to
        observe. `framework`: that of the process that trains. Raises UsageError with the reason if
        nothing could be observed."""


# from the root of the job's process tree to a probe; None: there is nothing to observe in this job
Start = Callable[[int], Probe | None]


# Steady growth of memory, or an allocator that still fills

# least samples of memory, and the share of first samples skipped while a job allocates its base
LEAST_SIZES, FILLING = 3, 0.3
# what grows steadily: its slopes are at most so many times each other's, and so large a share of
# looks, a ninth of the watch or so many seconds apart, sees more than the one before
ALIKE, THROUGHOUT, APART = 3.0, 0.75, 2.0
# seconds of a second measurement, and between its samples
AGAIN, PAUSE = 20.0, 0.25


def growth(sizes: Sequence[tuple[float, int]]) -> float | None:
    """Return the steady growth of memory in bytes per second: the least of the slopes of its
    thirds; negative if it shrinks in each. 0 if they differ, or if it is mostly constant: an
    allocator that still fills grows less and less, and by leaps. None if there are too few samples.
    `sizes`: times, and numbers of bytes."""
    kept = sizes[round(FILLING * len(sizes)) :]
    third = len(kept) // 3
    if third < LEAST_SIZES:
        return None
    slopes = [_slope(kept[at * third : (at + 1) * third]) for at in range(3)]
    least, *_, most = sorted(slopes, key=abs)
    steady = abs(most) <= ALIKE * abs(least) and least * most >= 0
    pause = (kept[-1][0] - kept[0][0]) / (len(kept) - 1)
    apart = max(third // 3, min(third, round(APART / pause)))
    pairs = zip(kept[:-apart], kept[apart:], strict=True)
    moved = [(after - before) * least > 0 for (_, before), (_, after) in pairs]
    return least if steady and sum(moved) >= THROUGHOUT * len(moved) else 0.0


def _slope(sizes: Sequence[tuple[float, int]]) -> float:
    """Return the median slope between any two of the sizes (Theil, 1950; Sen, 1968)."""
    return statistics.median(
        (b - a) / (then - now) for (now, a), (then, b) in itertools.combinations(sizes, 2)
    )


def unsettled(observation: Observation) -> Observation:
    """Return the observation without a doubtful growth of the main process, and with a note."""
    main = observation.main
    if main is None or not may_be_filling(main):
        return observation
    return _with_growth(
        observation,
        None,
        f"memory growth: memory grew by {(main.growth or 0.0) * 60 / 2**20:.0f} MiB per minute, "
        "which can also be an allocator that is still filling up; a longer run (another "
        f"{AGAIN:.0f} s) can distinguish the two",
    )


def looked_at_again(
    observation: Observation, job: Job, left: float, tell: Callable[[float], None]
) -> Observation:
    """Return the observation after a second measurement of a doubtful growth of the main process:
    at most the first growth. If `left`, in seconds, is too little for it, or the job ended, return
    it `unsettled`. `tell` receives the seconds that remain."""
    main = observation.main
    if main is None or not may_be_filling(main) or left < MIN_WATCH:
        return unsettled(observation)
    sizes: list[tuple[float, int]] = []
    until = time.monotonic() + min(left, AGAIN)
    for _ in job.events(PAUSE):
        if (now := time.monotonic()) >= until:
            break
        if not sizes or now >= sizes[-1][0] + PAUSE:
            sizes.append((now, process.anonymous(main.pid)))
            tell(until - now)
    now_grows = growth(sizes)
    if now_grows is None or job.exit_code is not None:
        return unsettled(observation)
    return _with_growth(observation, max(0.0, min(now_grows, main.growth or 0.0)))


def _with_growth(observation: Observation, growth: float | None, *unseen: str) -> Observation:
    """Return the observation with this growth of its main process."""
    main = observation.main
    processes = tuple(
        msgspec.structs.replace(one, growth=growth) if one is main else one
        for one in observation.processes
    )
    told = (*observation.unseen, *unseen)
    return msgspec.structs.replace(observation, processes=processes, unseen=told)


# The watch of a job

# the suffix of a function's name in TensorFlow, different for each graph
_NUMBERS = re.compile(r"(_\d+)+$")
# share of the busiest thread's CPU time below which another thread counts as sleeping
WORKS = 0.05


class JobWatch:
    """A watch that begins at once. `pid`: the process whose Python is sampled; `root`: of the job's
    process tree. Probes of extensions observe the job at the same time."""

    def __init__(self, root: int, pid: int, records: Mapping[int, Record]) -> None:
        self.began = time.monotonic()
        self._subject = pid
        self._records = records
        record = records.get(pid)
        self._graphs = len(record.graphs) if record else 0
        self._report = record.report if record else None
        self._watch = Watch(stat.Tree(root))
        self._host = HostWatch(pid)
        self._looks = Looks(pid, invited=record is not None)
        self._ending = ThreadPoolExecutor(1)
        self._seen: Future[Evidence] | None = None
        self._watch.start(self._watch.weigh)
        starts = [load(target) for each in extensions() for target in each.probes]
        self._probes: list[Probe] = list(filter(None, (start(root) for start in starts)))

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def watching(self) -> bool:
        """True while the job still runs."""
        return self._watch.is_sampling

    def end(self, subject: str) -> Evidence:
        """Return the evidence. `subject`: the job, in words. Can be called again, as after ^C."""
        if self._seen is None:
            self._seen = self._ending.submit(self._end, subject)
            self._ending.shutdown(wait=False)
        return self._seen.result()

    def _end(self, subject: str) -> Evidence:
        seconds = self.seconds
        own = {os.getpid(), *stat.descendants(os.getpid())}
        self._watch.stop()
        with self._watch as watch:
            job = {seen.pid for seen in watch.processes.values()}
            processes = tuple(map(self._process, watch.processes.values()))
            allowed = {cpu for one in processes for cpu in one.cpus}
            host = self._host.figures(job, own - job, allowed)
            python = stack_samples.python_activity(self._subject, self._looks.end())
            read = io_document.assemble(watch, subject, None)
            cost = watch.cpu / max(seconds, 1e-9)
        unseen = [self._looks.why] if self._looks.why else []
        reports = []
        record = self._records.get(self._subject)
        known = framework(record.process.framework if record else None)
        for probe in self._probes:
            try:
                reports.append(probe.end(known))
            except UsageError as error:
                unseen.append(str(error))
        observation = Observation(
            seconds=seconds,
            host=host,
            processes=processes,
            python=python,
            graphs=self._traced(),
            cost=cost,
            unseen=tuple(unseen),
        )
        return Evidence(observation, None, read, tuple(filter(None, reports)))

    def _process(self, seen: IoProcess) -> Process:
        seconds = max(seen.until - seen.since, TICK)
        used = seen.last_stat.since(seen.first_stat)
        record = self._records.get(seen.pid)
        settings = record.settings() if record else None
        threads = [thread.used for thread in seen.threads.values()]
        queued = [one.queued for one in threads if one.queued is not None]
        # threads from before the process was bound can still run anywhere, and sleep
        most = max((one.cpu for one in threads), default=0.0)
        allowed = {one.cpus for one in threads if one.cpu >= WORKS * most}
        return Process(
            pid=seen.pid,
            command=seen.command,
            seconds=seconds,
            cpu=(used.user + used.kernel) / seconds,
            kernel=used.kernel / seconds,
            queued=sum(queued) / seconds if queued else None,
            threads=len(seen.running),
            cpus=tuple(
                sorted({cpu for mask in allowed for cpu in kernel_files.parse_cpulist(mask)})
            ),
            ranks=_ranks(seen.pid),
            intra=settings.intra if settings else None,
            inter=settings.inter if settings else None,
            faults=used.minor / seconds,
            resident=max((size for _, size in seen.sizes[-3:]), default=0),
            growth=None if seen.ended else growth(seen.sizes),
            framework=record.process.framework if record else loaded(seen.pid),
            parent=seen.parent,
        )

    def _traced(self) -> Graphs | None:
        record = self._records.get(self._subject)
        if record is None:
            return None
        new = list(record.graphs)[self._graphs :]
        functions = Counter(_NUMBERS.sub("", record.graphs[graph].name) for graph in new)

        def added(total: str) -> Any:
            """Return the increase of a total since the watch began."""
            return getattr(record.report, total, 0) - getattr(self._report, total, 0)

        return Graphs(
            traced=len(new),
            once=sum(record.runs[record.same(graph)] <= 1 for graph in new),
            again=max(functions.values(), default=0),
            eager=float(added("unmarked")),
            waited=float(added("waited"))
            if framework(record.process.framework).counts_input_wait
            else None,
            compilations=added("compilations"),
            compiling=float(added("compiling")),
            steps=added("steps"),
            denormal_looks=added("denormal_looks"),
            denormal=added("denormal"),
        )


def _ranks(pid: int) -> int | None:
    """Return the number of the job's ranks on this node, as a launcher set it for the process."""
    try:
        found = local_rank(process.environment(pid))
    except (OSError, UsageError):  # access is denied, or launchers disagree
        return None
    return found.size if found else None
