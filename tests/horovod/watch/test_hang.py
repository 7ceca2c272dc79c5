"""Who hangs, by what is known of the ranks' progress."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from dltune.horovod.watch.hang import hung
from dltune.horovod.watch.progress import HUNG_SECONDS, Progress


@dataclass
class Rank:
    """Its background thread used `cycles` CPU seconds while it was watched."""

    pid: int
    cycles: float
    ended_at: float | None = None

    @property
    def progress(self) -> Progress:
        made = Progress()
        made.note(0.0, 0.0, 0.0)
        made.note(HUNG_SECONDS, self.cycles, 0.0)
        return made


def test_a_rank_that_was_killed_does_not_hang(started) -> None:
    """It stays a process until its launcher has waited for it, and gets no further."""
    other = started("print('ready', flush=True); import time; time.sleep(600)")
    with subprocess.Popen(["sleep", "600"]) as killed:
        ranks = [Rank(other.pid, 1.0), Rank(killed.pid, 0.0)]
        told = hung(ranks)
        assert told == {killed.pid: "its background thread has done nothing for 10 s"}
        killed.kill()
        os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
        assert hung(ranks) == {}
    assert hung(ranks) == {}
