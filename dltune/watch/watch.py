"""A job watched for some seconds in the background, while dltune receives its messages."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from dltune.base.errors import UsageError
from dltune.extensions import extensions, load
from dltune.findings.evidence import Evidence
from dltune.frameworks.capabilities import framework
from dltune.job.failures import loaded
from dltune.job.rank_layout import local_rank
from dltune.job.record import Record
from dltune.schemas.diagnosis import Graphs, Observation, Process
from dltune.system import kernel_files
from dltune.system.proc import process, stat
from dltune.system.proc.stat import TICK
from dltune.watch import activity
from dltune.watch.files import document
from dltune.watch.files.watch import Watch, WatchedProcess
from dltune.watch.growth import growth
from dltune.watch.host import HostWatch
from dltune.watch.looks import Looks
from dltune.watch.probe import Probe

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
        processes = stat.Tree(root)
        self._watch = Watch(processes)
        self._host = HostWatch(pid)
        self._looks = Looks(pid, invited=record is not None)
        self._sizes: dict[int, list[tuple[float, int]]] = defaultdict(list)
        self._over = threading.Event()
        self._ending = ThreadPoolExecutor(1)
        self._seen: Future[Evidence] | None = None
        self._thread = threading.Thread(
            target=self._watch.run, args=(None, self._over.is_set, self._weigh), daemon=True
        )
        self._thread.start()
        starts = [load(target) for each in extensions() for target in each.probes]
        self._probes: list[Probe] = list(filter(None, (start(root) for start in starts)))

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def watching(self) -> bool:
        """True while the job still runs."""
        return self._thread.is_alive()

    def _weigh(self) -> None:
        now = time.monotonic()
        for seen in self._watch.processes.values():
            if not seen.ended:
                self._sizes[seen.pid].append((now, process.anonymous(seen.pid)))

    def end(self, subject: str) -> Evidence:
        """Return the evidence. `subject`: the job, in words. Can be called again, as after ^C."""
        if self._seen is None:
            self._seen = self._ending.submit(self._end, subject)
            self._ending.shutdown(wait=False)
        return self._seen.result()

    def _end(self, subject: str) -> Evidence:
        seconds = self.seconds
        own = {os.getpid(), *stat.descendants(os.getpid())}
        self._over.set()
        self._thread.join()
        with self._watch as watch:
            job = {seen.pid for seen in watch.processes.values()}
            processes = tuple(map(self._process, watch.processes.values()))
            allowed = {cpu for one in processes for cpu in one.cpus}
            host = self._host.figures(job, own - job, allowed)
            python = activity.python(self._subject, self._looks.end())
            read = document.assemble(watch, subject, None)
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

    def _process(self, seen: WatchedProcess) -> Process:
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
            resident=max((size for _, size in self._sizes[seen.pid][-3:]), default=0),
            growth=None if seen.ended else growth(self._sizes[seen.pid]),
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
