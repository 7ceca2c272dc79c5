"""What a job's processes have used: CPU time, context switches, page faults, from /proc.

The job leads a session of its own, so its processes are those of that session.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


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
        """What was used between two readings.

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


def read(session: int, proc: Path = Path("/proc")) -> Reading:
    """The processes of a session now; those that end while they are read count as ended."""
    ticks = faults = 0
    switches = {}
    for pid in members(session, proc):
        with contextlib.suppress(OSError):
            fields = _fields(proc / str(pid) / "stat")
            # user and system time of the process and of its children that have ended; minor and
            # major faults likewise
            ticks += sum(map(int, fields[11:15]))
            faults += sum(map(int, fields[7:11]))
        with contextlib.suppress(OSError):
            for task in (proc / str(pid) / "task").iterdir():
                with contextlib.suppress(OSError):
                    switches[pid, int(task.name)] = _switches(task / "status")
    return Reading(ticks / os.sysconf("SC_CLK_TCK"), switches, faults)


def members(session: int, proc: Path = Path("/proc")) -> list[int]:
    """Processes of a session, by pid."""
    found = []
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if int(_fields(entry / "stat")[3]) == session:
                    found.append(int(entry.name))
    return found


def _fields(stat: Path) -> list[str]:
    """Fields of a stat file from the state on; the name before may hold blanks and brackets."""
    return stat.read_text().rpartition(")")[2].split()


def _switches(status: Path) -> tuple[int, int]:
    counts = {
        name: int(value)
        for name, _, value in (line.partition(":") for line in status.read_text().splitlines())
        if name.endswith("ctxt_switches")
    }
    return counts["voluntary_ctxt_switches"], counts["nonvoluntary_ctxt_switches"]
