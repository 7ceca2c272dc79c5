"""What threads used of the cores since they were first seen; what an ended one had, stays."""

from __future__ import annotations

from dataclasses import dataclass

from dltune.horovod.watch.roles import Told
from dltune.proc.threads import Counts


@dataclass
class ThreadSeen:
    """`first`: what it had when it was first seen, None for one that began since. `since`, `until`:
    when it was looked at first and last, of time.monotonic(). `told`: its role, None until it was
    seen at rest."""

    first: Counts | None
    last: Counts
    since: float
    until: float
    told: Told | None = None

    @property
    def born(self) -> bool:
        """It began while it was watched."""
        return self.first is None

    def look(self, now: float, new: Counts) -> None:
        self.last, self.until = new, now

    def used(self) -> Counts:
        """The growth of every count."""
        return self.last if self.first is None else self.last.since(self.first)
