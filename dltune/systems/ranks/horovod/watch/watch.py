"""Horovod's ranks, and PyTorch's, among the processes of a job, watched for a time.

Processes are searched for Horovod's library, and for PyTorch's; those that have it, and a
background thread or a rank's number, are ranks. All threads of ranks are counted. Each kind of
sample keeps a separate pace, so that all together stay well below a hundredth of one CPU.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from pathlib import Path

from dltune.job import protocol
from dltune.system.proc import process, stat
from dltune.system.proc.process import Mapping, mappings
from dltune.system.proc.stat import Tree
from dltune.systems.ranks.horovod.watch import libraries, ranks
from dltune.systems.ranks.horovod.watch.hang import Progress, still_hung
from dltune.systems.ranks.horovod.watch.libraries import Memory, Sleeps
from dltune.systems.ranks.horovod.watch.ranks import Ending, RankSeen, Roles
from dltune.watch.sampler import Key, Pace, Sampler

# least seconds between two samples of a kind, and the share of one CPU that it can take
MEMBERS, COUNTS = (2.0, 0.001), (2.0, 0.001)
# seconds between searches for ranks until there is one, and once all of this node's are found
UNTIL_RANKS, ALL_FOUND = 0.5, 10.0
# as above, of threads whose role is not known, because they ran (few), and of recorded sleeps
ROLES, SLEEPS = (0.25, 0.05), (0.25, 0.05)
# samples of a thread that always ran, after which it is given up
PATIENCE = 200
# most seconds of a rest while switches are recorded, for which the kernel keeps little room
RECORDING_REST = 0.1


class Watch(Sampler):
    """A watch of the ranks among a job's processes.

    `denied`: processes that dltune has no permission to read, with their users. `without`: why a
    process could not import Horovod. `failed`: exceptions that ended ranks. `amiss`: faults of
    Horovod next to a TensorFlow that runs without it. `stuck`: for each rank (by its pid) that
    hangs, the evidence. A `wait` calls `note_endings` at the end of a rank.
    """

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.ranks: dict[Key, RankSeen] = {}
        self.denied: dict[int, str] = {}  # pid: user
        self.without: dict[int, str] = {}
        self.failed: dict[int, protocol.RankFailed] = {}
        self.amiss: set[str] = set()
        self._sizes: dict[Key, int] = {}
        self._inits: dict[int, protocol.Horovod] = {}
        self._members = Pace(*MEMBERS, self._find, self._members_due)
        self._counts = Pace(*COUNTS, self._count)
        self.paces = (
            self._members,
            self._counts,
            Pace(*ROLES, self._tell_roles),
            Pace(*SLEEPS, self._look_at_sleeps, self._sleeps_due),
        )
        self._recording = False
        self.stuck: dict[int, str] = {}

    def close(self) -> None:
        for rank in self.ranks.values():
            rank.ending.close()

    @property
    def shut_out(self) -> bool:
        """True if dltune has no permission to read any process of the job."""
        return bool(self.denied) and len(self.denied) == len(self.members)

    def hear(self, message: object) -> None:
        """Take a message on Horovod from the bootstrap in a rank."""
        if isinstance(message, protocol.Horovod):
            self._inits[message.pid] = message
            self._members.soon()
            for rank in self.ranks.values():
                if rank.pid == message.pid:
                    rank.init = message
        elif isinstance(message, protocol.NoHorovod):
            self.without[message.pid] = message.reason
        elif isinstance(message, protocol.RankFailed):
            self.failed[message.pid] = message

    def has_ended(self) -> bool:
        self.note_endings()
        return super().has_ended()

    def finish(self) -> None:
        for rank in self.ranks.values():
            if rank.sleeps:
                rank.sleeps.close()
        self._count()
        self.note_endings()

    def of_job(self) -> list[RankSeen]:
        """Return one process for each rank: the process with a background thread, else the first to
        begin. A process that a rank forks has its library and its number too."""
        told = [one for one in self.ranks.values() if one.numbered or one.background is not None]
        size = max(((one.init or one.identity).size for one in told), default=0)
        best: dict[int, RankSeen] = {}
        for key in sorted(self.ranks, key=self._preference):
            seen = self.ranks[key]
            place = seen.init or seen.identity
            # a launcher that another launcher started, such as torchrun under mpirun, has fewer
            # ranks
            if seen.background is not None or (seen.numbered and place.size == size):
                best.setdefault(place.rank, seen)
        return [best[number] for number in sorted(best)]

    def _preference(self, key: Key) -> tuple[int, int]:
        """Return less for a process that is rather the rank; of a rank that was started again, for
        the running process."""
        seen = self.ranks[key]
        if seen.background is None:
            return 2, key[1]
        return int(seen.ended_at is not None), key[1]

    def _members_due(self, paced: float) -> float:
        if not self.ranks:  # what does not train yet is not held up
            return min(paced, time.monotonic() + UNTIL_RANKS)
        return time.monotonic() + ALL_FOUND if self._all_found() else paced

    def _find(self) -> None:
        for key in self.find_members(self._members):
            known = self.ranks.get(key)  # PyTorch can have been loaded before Horovod
            if key[0] not in self.denied and (known is None or not known.cycles):
                self._search(key)

    def _all_found(self) -> bool:
        """No rank of the node is missing or has ended."""
        alive = [r for r in self.ranks.values() if r.numbered and r.ended_at is None and r.stack]
        return bool(alive) and len(alive) == alive[0].identity.local_size == len(self.ranks)

    def _search(self, key: Key) -> None:
        """Search for Horovod's library in a process whose address space has grown since the last
        search."""
        pid = key[0]
        size = process.address_space(pid)
        if size == self._sizes.get(key):
            return
        self._sizes[key] = size
        try:
            mapped = mappings(pid)
            environ = process.environment(pid)
            found = libraries.find_horovod(pid, mapped) or libraries.find_torch(
                pid, mapped, environ
            )
            if found is None:
                self._note_tensorflow(pid, mapped)
                return
            known = self.ranks.get(key)
            if known and not found.is_horovod:
                return
            ending = known.ending if known else Ending(pid)
        except PermissionError:
            self.denied[pid] = process.owner(pid)
            return
        except OSError:
            return  # it has ended
        identity = ranks.identify(pid, environ, mapped, found)
        now = time.monotonic()
        cpu = process.cpu_seconds(pid) or 0.0
        self.ranks[key] = RankSeen(
            pid=pid,
            identity=identity,
            numbered=any(name in environ for name in ranks.NUMBERS),
            roles=Roles(pid, mapped, found),
            since=now,
            until=now,
            clock=int(stat.now()),
            cpu=(cpu, cpu),
            ending=ending,
            init=self._inits.get(pid),
        )
        self._counts.soon()

    def _note_tensorflow(self, pid: int, mapped: Sequence[Mapping]) -> None:
        """Note the faults of Horovod next to the TensorFlow of a process that has not loaded it."""
        for mapping in mapped:
            if "/tensorflow/libtensorflow_framework" in mapping.path:
                packages = Path(mapping.path).parent.parent
                folder = Path(f"/proc/{pid}/root{packages}/horovod")
                if not folder.is_dir():
                    self.amiss.add(f"{packages} has TensorFlow but no Horovod")
                elif not list(folder.glob("tensorflow/mpi_lib*.so")):
                    self.amiss.add(f"Horovod in {packages} is built without TensorFlow")

    def _count(self) -> None:
        for rank in self.ranks.values():
            if rank.ended_at is None:
                self._count_threads(rank)
        self.stuck = still_hung(self.stuck, self.of_job())

    def _count_threads(self, rank: RankSeen) -> None:
        cpu = process.cpu_seconds(rank.pid) if rank.count_threads() else None
        if cpu is not None:
            # no earlier than any count: no thread used more than there was
            rank.until, rank.cpu = time.monotonic(), (rank.cpu[0], cpu)
            self._note_progress(rank)

    def _from_now_on(self, rank: RankSeen) -> None:
        """Exclude a rank's activity before its background thread was there from its figures: it
        imported and made its model."""
        rank.since = time.monotonic()
        self._count_threads(rank)
        rank.threads = {key: rank.threads[key] for key in rank.running}
        for thread in rank.threads.values():
            thread.first, thread.since, thread.born = thread.last, rank.since, False
        rank.cpu = (rank.cpu[1], rank.cpu[1])
        rank.progress = Progress()

    def _note_progress(self, rank: RankSeen) -> None:
        cycles = others = 0.0
        for (tid, _), thread in rank.threads.items():
            last = thread.last
            if tid == rank.background:
                cycles += last.cpu + last.voluntary + last.involuntary
            elif thread.identity is None or thread.identity.role != "helper":
                others += last.cpu
        rank.progress.note(rank.until, cycles, others)

    def _tell_roles(self) -> None:
        for rank in self.ranks.values():
            unknown = [
                key
                for key in rank.running
                if rank.threads[key].identity is None and rank.looks.get(key, 0) < PATIENCE
            ]
            if not unknown or rank.ended_at is not None or rank.refused:
                continue
            before = rank.stack
            try:
                with Memory(rank.pid) as memory:
                    for key in unknown:
                        rank.looks[key] = rank.looks.get(key, 0) + 1
                        thread = rank.threads[key]
                        thread.identity = rank.roles.tell(memory, key[0], thread.last.stat.name)
                        if thread.identity and thread.identity.role == "background":
                            rank.note_background(key[0], thread.identity.name)
            except PermissionError as error:
                rank.refused = f"{error.strerror}: /proc/{rank.pid}/mem"
            except OSError:
                continue  # it has ended
            if before is None and rank.stack is not None:
                self._from_now_on(rank)

    def _look_at_sleeps(self) -> None:
        self._recording = False
        for rank in self.ranks.values():
            if rank.ended_at is not None or rank.stack is None or not rank.cycles:
                continue
            if rank.sleeps is None:
                setting = ranks.cycle_time(rank.settings)
                rank.sleeps = Sleeps(rank.stack, rank.identity.library, setting)
            self._recording |= rank.sleeps.look()

    def _sleeps_due(self, paced: float) -> float:
        return time.monotonic() + RECORDING_REST if self._recording else paced

    def rest(self, seconds: float) -> None:
        alive = [rank.ending for rank in self.ranks.values() if rank.ended_at is None]
        select.select(alive, [], [], seconds)

    def note_endings(self) -> None:
        for rank in self.ranks.values():
            known = rank.ended_at is not None and rank.ending.code is not None
            if not known and rank.ending.ended() and rank.ended_at is None:
                rank.ended_at = time.monotonic()
                self._members.soon()
