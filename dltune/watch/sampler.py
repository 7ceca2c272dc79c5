"""A sampler of a job's processes: several kinds of samples, each at its own pace, in one loop.

`Sampler` finds the processes of a job and calls its probes, a `Pace` each, until the end.
`WatchedProcess` and `WatchedThread` hold what was counted of a process and of its threads since
they were first seen. A pace samples seldom enough not to slow down the job: each kind of sample
waits in proportion to the cost of its last samples.
"""

from __future__ import annotations

import abc
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

from dltune.system.proc import stat
from dltune.system.proc.stat import TICK, Counts, Tree

Key = tuple[int, int]  # a process's or thread's number, and when it began in ticks since boot


def began_at(started: int) -> float:
    """Return a time in ticks since boot as a time of time.monotonic()."""
    return time.monotonic() - max(0.0, (stat.now() - started) * TICK)


# The processes that are watched


@dataclass(kw_only=True)
class WatchedThread:
    """A thread's counts when it was first seen and last. `first` is zero for a thread that began
    while its process was watched (`born`). `since`, `until`: a time before the first counts, and
    one after the last: the thread used no more than there was."""

    first: Counts
    last: Counts
    since: float
    until: float
    born: bool

    @property
    def used(self) -> Counts:
        """The growth of every count."""
        return self.last.since(self.first)


AThread = TypeVar("AThread", bound=WatchedThread)


@dataclass(kw_only=True)
class WatchedProcess(Generic[AThread]):
    """A process while it is watched, from `since` until `until` of time.monotonic().

    `clock`: ticks since boot; threads that began since then count from zero. `threads`: those that
    have ended too. `running`: those of the last sample.
    """

    pid: int
    since: float
    until: float
    clock: int
    thread_type: type[AThread]
    threads: dict[Key, AThread] = field(default_factory=dict)
    running: set[Key] = field(default_factory=set)

    def current(self) -> Iterator[tuple[int, AThread]]:
        """Yield the threads that ran at the last sample, with their numbers."""
        for key in self.running:
            yield key[0], self.threads[key]

    def count_threads(self) -> bool:
        """Read the counts of all threads. Return False if the process has ended."""
        last = {tid: thread.last for tid, thread in self.current()}
        running = set()
        for tid in stat.threads(self.pid):
            before = time.monotonic()
            counts = stat.counts(self.pid, tid, last.get(tid))
            after = time.monotonic()
            if counts is None:
                continue
            started = counts.stat.started
            running.add((tid, started))
            if thread := self.threads.get((tid, started)):
                thread.last, thread.until = counts, after
                continue
            born = started >= self.clock
            self.threads[tid, started] = self.thread_type(
                first=counts.since(counts) if born else counts,
                last=counts,
                since=max(self.since, began_at(started)) if born else before,
                until=after,
                born=born,
            )
        if running:
            self.running = running
        return bool(running)


# The pace of sampling

# the first wait in seconds, and the ratio of each wait to the previous one until `least` is reached
FIRST, GROWTH = 0.1, 1.6
LONGEST = 1.5  # most seconds by which an expensive sample delays the next samples
TELL_SECONDS = 1.0
SHORTEST = 0.001  # seconds of a rest between samples


class Pace:
    """A kind of sample, and when the next sample is due, in seconds of time.monotonic().

    Waits at least `least` seconds, and long enough that sampling takes at most `share` of the time
    of one CPU. The first waits are shorter, from `FIRST` on: much happens while a job starts. Waits
    vary by a third, so that samples do not fall into step with the observed process.

    `due` can adjust this: it receives the computed time, and returns another.
    """

    def __init__(
        self,
        least: float,
        share: float,
        look: Callable[[], object],
        due: Callable[[float], float] = lambda paced: paced,
    ) -> None:
        self._least = least
        self._now = min(FIRST, least)
        self._share = share
        self._look = look
        self._adjusted = due
        self._cost = 0.0
        self.due = time.monotonic()
        self.looks = 0

    def take(self) -> None:
        """Take a sample now."""
        began = time.thread_time()
        self._look()
        cost = time.thread_time() - began
        # rises at once, falls slowly: one cheap sample does not make up for an expensive sample
        self._cost = max(cost, 0.8 * self._cost + 0.2 * cost)
        self.looks += 1
        dear = self._cost / self._share if self._now >= self._least else 0.0
        wait = max(self._now, min(dear, LONGEST))
        self._now = min(self._least, self._now * GROWTH)
        self.due = self._adjusted(time.monotonic() + wait * random.uniform(0.83, 1.17))

    def soon(self) -> None:
        """Restart with short waits, because there is something new."""
        self._now = min(FIRST, self._least)
        self.due = min(self.due, time.monotonic() + self._now)


class Sampler(abc.ABC):
    """Samples of a job, for a time or in the background. Use as a context manager.

    `members`: all processes of the job so far; `running`: those of the last search. `began`,
    `ended`: of time.monotonic(). `cpu`: CPU seconds that the sampling took, once it is over.
    """

    # most seconds without a sample
    REST = 0.25

    def __init__(self, tree: Tree) -> None:
        """`tree`: the processes of the job."""
        self.tree = tree
        self.paces: tuple[Pace, ...] = ()
        self.running: set[Key] = {(tree.root, tree.started(tree.root))}
        self.members: set[Key] = set()
        self.began = self.ended = time.monotonic()
        self.cpu = 0.0
        # in whole ticks, the unit in which the kernel reports the start of a process
        self.clock = int(stat.now())
        self._cpu = time.process_time()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abc.abstractmethod
    def finish(self) -> None:
        """Take the last samples."""

    @abc.abstractmethod
    def close(self) -> None:
        """Give back the files that the samples need."""

    def has_ended(self) -> bool:
        """Return True if all processes have ended; asked after each round of samples."""
        return not self.running

    def rest(self, seconds: float) -> None:
        """Let so much time pass, or less if there is something new."""
        time.sleep(seconds)

    @property
    def looks(self) -> int:
        """The number of samples of all kinds so far."""
        return sum(pace.looks for pace in self.paces)

    def find_members(self, *paces: Pace) -> list[Key]:
        """Return the processes that run now, the root first. If one of them is new, `paces` restart
        with short waits: it loads libraries, opens files and starts processes soon."""
        found = [(pid, self.tree.started(pid)) for pid in self.tree.refresh()]
        self.running = set(found)
        if self.running - self.members:
            self.members |= self.running
            for pace in paces:
                pace.soon()
        return found

    def run(
        self,
        seconds: float | None,
        over: Callable[[], bool],
        tell: Callable[[], None],
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """Take each sample when it is due, until `seconds` have passed, all processes have ended or
        `over`, which is called after each round of samples, returns True. `tell` is called about
        once a second, `wait` (else `rest`) to let time pass: at most `REST` seconds, so that `over`
        is called that often."""
        told = time.monotonic()
        try:
            while True:
                now = time.monotonic()
                for pace in self.paces:
                    if pace.due <= now:
                        pace.take()
                self.ended = time.monotonic()
                ended = self.has_ended()
                done = over() or ended or (seconds is not None and now >= self.began + seconds)
                if now - told >= TELL_SECONDS:
                    told = now
                    tell()
                if done:
                    return
                due = min(pace.due for pace in self.paces)
                (wait or self.rest)(min(max(due - time.monotonic(), SHORTEST), self.REST))
        finally:
            self.ended = time.monotonic()
            self.finish()
            self.cpu += time.process_time() - self._cpu

    def start(self, tell: Callable[[], None] = lambda: None) -> None:
        """Sample in the background, until `stop` or until all processes have ended."""
        arguments = (None, self._over.is_set, tell)
        self._thread = threading.Thread(target=self.run, args=arguments, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the sampling in the background, and wait until it has ended."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def is_sampling(self) -> bool:
        """True while it samples in the background."""
        return self._thread is not None and self._thread.is_alive()
