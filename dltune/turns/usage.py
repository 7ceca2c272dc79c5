"""Resources that a job's processes have used: CPU time, context switches, page faults, from /proc.

The job leads its own session, so its processes are those of that session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dltune.system.proc import stat as threads
from dltune.system.proc import stat as tree


@dataclass(frozen=True)
class Usage:
    """`cpu` in seconds; `voluntary` and `involuntary` context switches; page faults, minor and
    major together."""

    cpu: float
    voluntary: int
    involuntary: int
    faults: int = 0


@dataclass(frozen=True)
class Reading:
    """Totals so far: CPU seconds and page faults of all processes, ended children included, and the
    voluntary and involuntary switches of each (pid, thread)."""

    cpu: float
    switches: Mapping[tuple[int, int], tuple[int, int]]
    faults: int = 0

    def since(self, before: Reading) -> Usage:
        """Return the usage between two readings.

        The kernel keeps no count of a process's switches beyond its threads': those of a thread
        that ended between the readings are lost, its CPU time is not.
        """
        voluntary = involuntary = 0
        for thread, (now, now_forced) in self.switches.items():
            was, was_forced = before.switches.get(thread, (0, 0))
            reused = now < was or now_forced < was_forced  # another thread with an old number
            voluntary += now - (0 if reused else was)
            involuntary += now_forced - (0 if reused else was_forced)
        faults = max(self.faults - before.faults, 0)
        return Usage(max(self.cpu - before.cpu, 0.0), voluntary, involuntary, faults)


def read(session: int) -> Reading:
    """The processes of a session now; those that end while they are read count as ended."""
    found = tree.session(session)
    switches = {}
    for pid in found:
        for tid in threads.threads(pid):
            if switched := threads.switches(pid, tid):
                switches[pid, tid] = switched[:2]
    return Reading(
        cpu=sum(stat.user + stat.kernel + stat.children_cpu for stat in found.values()),
        switches=switches,
        faults=sum(stat.minor + stat.major + stat.children_faults for stat in found.values()),
    )
