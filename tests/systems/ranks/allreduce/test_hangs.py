"""Ranks that hang, seen from outside."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from dltune.system.proc.stat import threads
from dltune.systems.ranks.horovod.watch.hang import Rank

THREADS = """
import threading
print("ready", flush=True)
ends = [threading.Event() for _ in range(2)]
threads = [threading.Thread(target=end.wait) for end in ends]
for thread in threads:
    thread.start()
print(*(thread.native_id for thread in threads), flush=True)
for end, thread in zip(ends, threads):
    input()
    end.set()
input()
"""


def test_a_rank_without_its_background_thread_is_not_there(
    started: Callable[..., subprocess.Popen[bytes]],
) -> None:
    """Of a rank that was killed it may end before the process: no thread that has done nothing."""
    process = started(THREADS, stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    helper, background = map(int, process.stdout.readline().split())
    rank = Rank(0, process.pid, (background, helper))
    seen = [rank.look(0.0)]
    for ended in (helper, background):
        process.stdin.write(b"\n")
        process.stdin.flush()
        until = time.monotonic() + 240
        while ended in threads(process.pid):
            assert time.monotonic() < until
            time.sleep(0.01)
        seen.append(rank.look(0.0))
    assert seen == [True, True, False]
