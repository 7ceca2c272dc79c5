"""One rank while it is watched, and its threads; figures of an ended thread stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dltune.job import protocol
from dltune.system.proc.stat import Counts
from dltune.systems.ranks.horovod.watch import ranks, torch_library
from dltune.systems.ranks.horovod.watch.ending import Ending
from dltune.systems.ranks.horovod.watch.progress import Progress
from dltune.systems.ranks.horovod.watch.ranks import Identity
from dltune.systems.ranks.horovod.watch.roles import Roles, ThreadIdentity
from dltune.systems.ranks.horovod.watch.sleeps import Sleeps

Key = tuple[int, int]  # a thread's or process's number, and when it began


@dataclass
class ThreadSeen:
    """`first`: its counts when it was first seen, None for a thread that began since. `since`,
    `until`: when it was sampled first and last, of time.monotonic(). `identity`: its role and name,
    None until it was seen at rest."""

    first: Counts | None
    last: Counts
    since: float
    until: float
    identity: ThreadIdentity | None = None

    @property
    def born(self) -> bool:
        """It began while it was watched."""
        return self.first is None

    def used(self) -> Counts:
        """The growth of every count."""
        return self.last if self.first is None else self.last.since(self.first)


@dataclass
class RankSeen:
    """A process with Horovod's library, or PyTorch's.

    `numbered`: its launcher gave it its rank number. `since`, `until`: of time.monotonic(); `cpu`:
    of the process at these times. `stack`: the thread that is in the background loop. `init`: the
    job's message on hvd.init(). `refused`: why its memory cannot be read.
    """

    pid: int
    identity: Identity
    numbered: bool
    roles: Roles
    since: float
    until: float
    cpu: tuple[float, float]
    ending: Ending
    threads: dict[Key, ThreadSeen] = field(default_factory=dict)
    running: set[Key] = field(default_factory=set)
    looks: dict[Key, int] = field(default_factory=dict)
    stack: int | None = None
    init: protocol.Horovod | None = None
    ended_at: float | None = None
    refused: str | None = None
    progress: Progress = field(default_factory=Progress)
    sleeps: Sleeps | None = None

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings at hvd.init() where the job reports them, else those at the process's
        start."""
        return ranks.settings(self.init.settings) if self.init else self.identity.settings

    @property
    def background(self) -> int | None:
        """Return its background thread; by its stack where the two ways disagree: the stack shows
        the present activity."""
        if self.stack is None and self.init and self.init.threads:
            return self.init.threads[0]
        return self.stack

    @property
    def cycles(self) -> bool:
        """Its background thread goes on when there is nothing to send, as Horovod's does."""
        return self.identity.library.is_horovod

    def note_background(self, tid: int, name: str) -> None:
        """Note a thread that sends; of PyTorch's several threads, the thread that waits at the
        sockets counts."""
        if self.cycles or self.stack is None or torch_library.LOOP.match(name):
            self.stack = tid

    def current(self) -> Iterator[tuple[int, ThreadSeen]]:
        for key in self.running:
            yield key[0], self.threads[key]
