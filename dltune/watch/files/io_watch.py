"""A watch of a job for a time: samples of several kinds, each at its own pace, and totals.

members    the process tree, and the counts of every process and thread
waits      which threads wait for storage at this moment, and in which call or fault
files      data files, their resident parts, positions of descriptors
bursts     page faults with their addresses
lines      the Python of a thread that was just seen waiting
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dltune.schemas.io import Pressure
from dltune.system.proc import process, stat
from dltune.system.proc.process import Reads
from dltune.system.proc.stat import Counts, Stat, Tree
from dltune.watch.files.accesses import KEPT, FaultWatch, Wait, waiting
from dltune.watch.files.data_files import DataFiles, Key, Mapping, Opened
from dltune.watch.host import PressureWatch
from dltune.watch.sampler import Key as ProcessKey
from dltune.watch.sampler import Pace, Sampler, WatchedProcess, WatchedThread, began_at
from dltune.watch.stack_samples import WaitingLines

# least seconds between two samples of a kind, and the most that it takes of one CPU (a share);
# together they stay well below a hundredth of a CPU
MEMBERS, WAITS = (1.0, 0.002), (0.02, 0.002)
FILES, RESIDENT, BURSTS = (0.5, 0.002), (2.0, 0.001), (2.5, 0.001)
LINES_SECONDS = 5.0
# number of threads sampled for waits: those that slept most since the last sample of all threads
LOOKED_AT = 48


@dataclass(kw_only=True)
class IoThread(WatchedThread):
    """A thread, with its `looks` for waits. `waited`: seconds that it waited for storage. `before`:
    its counts at the last sample of all threads."""

    looks: int = 0
    waits: int = 0
    waited: float = 0.0
    looked: float | None = None
    before: Counts | None = None


@dataclass
class FileUse:
    """The use of one file by one process.

    `resident`: bytes in its page table; `touched`: bytes that came meanwhile. `progress`: bytes by
    which positions of its descriptors moved on, in steps forward. `positions` of a descriptor.
    `calls` of a thread that were seen waiting: (offset, size, bytes the thread had read then).
    """

    mapped: int = 0
    resident: int = 0
    surveyed: bool = False
    touched: int = 0
    advice: str | None = None
    direct: bool = False
    progress: int = 0
    positions: dict[int, list[int]] = field(default_factory=dict)
    calls: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    copied: dict[int, tuple[int, int]] = field(default_factory=dict)
    sizes: Counter[int] = field(default_factory=Counter)


@dataclass(kw_only=True)
class IoProcess(WatchedProcess[IoThread]):
    """`new`: began since the watch did. `first` and `last` are None when they are denied.

    `rss_file`: bytes of mapped files in the page table, last seen; `rss_surveyed`: at the last
    survey of its mappings. `sizes`: times, and bytes of its anonymous memory (`weigh`).
    """

    parent: int
    command: str
    owner: str
    new: bool
    may_look: bool
    first_stat: Stat
    last_stat: Stat
    first_reads: Reads | None
    last_reads: Reads | None
    rss_file: int = 0
    rss_surveyed: int = 0
    sizes: list[tuple[float, int]] = field(default_factory=list)
    thread_type: type[IoThread] = IoThread
    files: dict[Key, FileUse] = field(default_factory=dict)
    mappings: tuple[Mapping, ...] = ()
    descriptors: dict[int, Key] = field(default_factory=dict)
    ended: bool = False

    @property
    def reads(self) -> Reads | None:
        """The growth of every count; None when they are denied."""
        if self.first_reads is None or self.last_reads is None:
            return None
        return self.last_reads.since(self.first_reads)


class Watch(Sampler):
    """A watch of all processes of a job. It holds data files open until it is closed."""

    REST = 0.2

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.processes: dict[ProcessKey, IoProcess] = {}
        self.files = DataFiles()
        self.faults = FaultWatch()
        self.lines = WaitingLines()
        self._pressure = PressureWatch(tree.root)
        self.pressure: tuple[Pressure, ...] = ()
        self._members = Pace(*MEMBERS, self._look_at_members)
        self._files = Pace(*FILES, self._look_at_files)
        self._resident = Pace(*RESIDENT, self._look_at_resident)
        self.paces = (
            self._members,
            self._files,
            self._resident,
            Pace(*BURSTS, self._burst, lambda paced: self.faults.due or paced),
            Pace(*WAITS, self._look_at_waits),
        )
        self._next_line = self.began
        self._readers: list[tuple[IoProcess, ProcessKey]] = []

    def close(self) -> None:
        self.lines.finish()
        self.faults.close()
        self.files.close()

    def threads(self) -> Iterator[IoThread]:
        """Of all processes, those that have ended too."""
        return (thread for seen in self.processes.values() for thread in seen.threads.values())

    def weigh(self) -> None:
        """Note the size of the memory of each process that runs."""
        now = time.monotonic()
        for seen in self.processes.values():
            if not seen.ended:
                seen.sizes.append((now, process.anonymous(seen.pid)))

    def finish(self) -> None:
        self.pressure = self._pressure.shares()
        if self.faults.due:
            self._end_burst()
        self._look_at_members()
        self._look_at_files()
        self._look_at_resident()
        self.lines.finish()
        self.cpu += self.lines.cpu

    def _burst(self) -> None:
        if self.faults.due:
            self._end_burst()
        elif self.faults.refused is None:
            self._begin_burst()

    def _look_at_members(self) -> None:
        members = self.find_members(self._members, self._files, self._resident)
        for key, seen in self.processes.items():
            seen.ended = key not in self.running
        for pid, started in members:
            self._look_at_process(pid, started)
        self._choose_readers()

    def _look_at_process(self, pid: int, started: int) -> None:
        found, reads = stat.of_process(pid), process.reads(pid)
        now = time.monotonic()  # no earlier than the CPU time: it used no more than there was
        if found is None or found.started != started:
            return
        seen = self.processes.get((pid, started))
        if seen is None:
            new = started >= self.clock
            seen = self.processes[pid, started] = IoProcess(
                pid=pid,
                parent=found.parent,
                command=process.command(pid) or found.name,
                owner=process.owner(pid),
                new=new,
                since=max(self.began, began_at(started)) if new else now,
                until=now,
                clock=started if new else int(stat.now()),
                may_look=process.may_look_into(pid),
                first_stat=found.since(found) if new else found,
                last_stat=found,
                first_reads=reads.since(reads) if new and reads else reads,
                last_reads=reads,
            )
        seen.until, seen.last_stat = now, found
        seen.command = process.command(pid) or seen.command  # of a child, until it runs its own
        seen.last_reads = reads or seen.last_reads
        seen.rss_file = process.resident_files(pid) or seen.rss_file
        seen.count_threads()

    def _choose_readers(self) -> None:
        """Return the threads that slept, or faulted from storage, since the last sample of all."""
        ranked = []
        for seen in self.processes.values():
            for key in () if seen.ended else seen.running:
                thread = seen.threads[key]
                before, thread.before = thread.before or thread.first, thread.last
                slept = thread.last.voluntary - before.voluntary
                major = thread.last.stat.major - before.stat.major
                if slept or major or thread.last.stat.state == "D":
                    ranked.append((thread.waits + major, slept, seen, key))
        ranked.sort(key=lambda one: one[:2], reverse=True)
        self._readers = [(seen, key) for _, _, seen, key in ranked[:LOOKED_AT]]

    def _look_at_waits(self) -> None:
        for seen, key in self._readers:
            thread, tid = seen.threads[key], key[0]
            now = time.monotonic()
            wait = waiting(seen.pid, tid, seen.may_look)
            thread.looks += 1
            if wait is not None and self._of_storage(seen, wait):
                thread.waits += 1
                # a thread that had no samples for a while did not sleep: it counts from now on
                thread.waited += min(now - (thread.looked or now), 1.0)
                if wait.cause == "call":
                    self._note_call(seen, tid, wait)
                if self.lines.ready and seen.may_look and now >= self._next_line:
                    self._next_line = now + LINES_SECONDS
                    self.lines.look(seen.pid, tid)
            thread.looked = now

    def _of_storage(self, seen: IoProcess, wait: Wait) -> bool:
        """Not of a pipe, a socket or a terminal, in which a call that reads may sleep too."""
        if wait.descriptor is None or wait.descriptor in seen.descriptors:
            return True
        shown = process.target(seen.pid, wait.descriptor)
        return shown is not None and shown.startswith("/")  # a plain file's shows its path

    def _note_call(self, seen: IoProcess, tid: int, wait: Wait) -> None:
        number = wait.descriptor or 0
        key = seen.descriptors.get(number)
        if key is None or wait.size is None:
            return
        use = seen.files.setdefault(key, FileUse())
        use.sizes[wait.size] += 1
        offset = wait.offset
        if offset is None and (place := process.position(seen.pid, number)):
            offset = place.at
        series = use.calls.setdefault(tid, [])
        if offset is None or len(series) >= KEPT:
            return
        series.append((offset, wait.size))
        if own := process.reads(seen.pid, tid):
            use.copied[tid] = (use.copied.get(tid, (own.copied, 0))[0], own.copied)

    def _open_to_look(self) -> list[IoProcess]:
        return [s for s in self.processes.values() if s.may_look and not s.ended]

    def _look_at_files(self) -> None:
        for seen in self._open_to_look():
            # it has ended, or cannot be inspected
            with contextlib.suppress(OSError):
                seen.mappings = self.files.mappings(seen.pid)
                mapped: Counter[Key] = Counter()
                for mapping in seen.mappings:
                    mapped[mapping.key] += mapping.end - mapping.start
                for key, size in mapped.items():
                    use = seen.files.setdefault(key, FileUse())
                    use.mapped = max(use.mapped, size)
            with contextlib.suppress(OSError):
                self._take_opened(seen, list(self.files.opened(seen.pid)))

    def _look_at_resident(self) -> None:
        alive = self._open_to_look()
        for seen in alive:
            try:
                found = self.files.resident(seen.pid, seen.mappings) if seen.mappings else []
            except OSError:
                continue
            seen.rss_file = seen.rss_surveyed = process.resident_files(seen.pid) or seen.rss_file
            resident: Counter[Key] = Counter()
            for key, part in found:
                resident[key] += part.bytes
                seen.files[key].advice = part.advice
            for key, size in resident.items():
                use = seen.files[key]
                # what was there when the watch began was not touched during it
                before = use.resident if use.surveyed or seen.new else size
                use.touched += max(0, size - before)
                use.resident, use.surveyed = size, True
        for known in self.files.known.values():
            known.look()
            if alive:
                known.beside = known.came

    def _take_opened(self, seen: IoProcess, found: Sequence[Opened]) -> None:
        seen.descriptors = {opened.descriptor: opened.key for opened in found}
        for opened in found:
            use = seen.files.setdefault(opened.key, FileUse())
            use.direct |= opened.direct
            series = use.positions.setdefault(opened.descriptor, [])
            if series:
                use.progress += max(0, opened.position - series[-1])
            elif seen.new:
                use.progress += opened.position
            if len(series) < KEPT and (not series or series[-1] != opened.position):
                series.append(opened.position)

    def _begin_burst(self) -> None:
        """On the threads with the most faults from storage, then with the most of all."""
        ranked = []
        for seen in self.processes.values():
            for key in seen.running if seen.mappings and not seen.ended else ():
                thread = seen.pid, key[0]
                sampled = self.faults.threads.get(thread)
                used = seen.threads[key].used.stat
                # a thread that has a file in its samples had a fault on it
                ranked.append((bool(sampled and sampled.files), used.major, used.minor, thread))
        ranked.sort(reverse=True)
        self.faults.begin([thread for *_, thread in ranked])

    def _end_burst(self) -> None:
        alive = (seen for seen in self.processes.values() if not seen.ended)
        self.faults.end({seen.pid: seen.mappings for seen in alive})
