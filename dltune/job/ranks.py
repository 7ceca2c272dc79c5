"""Start a command once for each rank on this machine: `python ranks.py RANKS COUNT COMMAND...`.

RANKS are numbers of the job's COUNT ranks, such as 0,1. Rank 0 has this process's input and output;
what the others say is kept in the folder that DLTUNE_RANKS_FOLDER names. The first that fails ends
the others, is named there, and gives the exit code. Standard library only: this runs in the job's
process group.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

RANK, RANKS, FOLDER = "DLTUNE_RANK", "DLTUNE_RANKS", "DLTUNE_RANKS_FOLDER"
LOCAL_RANK, LOCAL_RANKS = "DLTUNE_LOCAL_RANK", "DLTUNE_LOCAL_RANKS"
# seconds from SIGTERM to SIGKILL
GRACE = 5.0
_NOT_STARTED = 127


def log(folder: Path, rank: int) -> Path:
    """What a rank other than the first has said."""
    return folder / f"rank-{rank}.log"


def free_address() -> str:
    """Where the ranks of one machine can meet."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


def first_failed(folder: Path) -> tuple[int, int] | None:
    """The rank that failed first, and its exit code."""
    try:
        rank, code = (folder / "failed").read_text().split()
    except FileNotFoundError:
        return None
    return int(rank), int(code)


def started(here: Sequence[int], count: int, command: Sequence[str]) -> list[str]:
    """The command that starts ranks of `command`, isolated: it is no interpreter of the job's."""
    numbers = ",".join(map(str, here))
    return [sys.executable, "-I", __file__, numbers, str(count), *command]


def run(here: Sequence[int], count: int, folder: Path, command: Sequence[str]) -> int:
    """The exit code: that of the rank that failed first, 0 when none did."""
    ranks: dict[int, int] = {}
    # kept: a Popen that is let go takes the exit code of one that has ended with it
    children = []
    try:
        for place, rank in enumerate(here):
            environment = {
                **os.environ,
                **{RANK: str(rank), RANKS: str(count)},
                **{LOCAL_RANK: str(place), LOCAL_RANKS: str(len(here))},
            }
            if rank == 0:
                child = subprocess.Popen(command, env=environment)
            else:
                with open(log(folder, rank), "wb") as said:
                    child = subprocess.Popen(
                        command,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=said,
                        stderr=subprocess.STDOUT,
                    )
            children.append(child)
            ranks[child.pid] = rank
        for pid, status in _ends([*ranks]):
            rank = ranks.pop(pid)
            if code := os.waitstatus_to_exitcode(status):
                code = code if code > 0 else 128 - code
                (folder / "failed").write_text(f"{rank} {code}")
                return code
    finally:
        _end(set(ranks))
    return 0


def _ends(pids: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield the pid and the wait status of each child, in the order in which they end.

    `os.wait` returns the oldest of the children that have ended, and a rank that dies soon takes
    others with it. Linux before 5.3 offers no other order.
    """
    try:
        files = {os.pidfd_open(pid): pid for pid in pids}
    except OSError:
        for _ in pids:
            yield os.wait()
        return
    with select.epoll() as ends:
        for file in files:
            ends.register(file, select.EPOLLIN)
        while files:
            for file, _ in ends.poll():
                ends.unregister(file)
                os.close(file)
                yield os.waitpid(files.pop(file), 0)


def _end(pids: set[int]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    until = time.monotonic() + GRACE
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    while pids and time.monotonic() < until:
        pids -= {pid for pid in pids if os.waitpid(pid, os.WNOHANG)[0]}
        time.sleep(0.02)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _terminated(number: int, _: object) -> None:
    """None is left behind by whoever ends this process alone."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # the ranks have it, too: how the first of them ends is what ends the others
        signal.signal(signal.SIGINT, lambda *_: None)
    try:
        sys.exit(
            run(
                [int(rank) for rank in sys.argv[1].split(",")],
                int(sys.argv[2]),
                Path(os.environ[FOLDER]),
                sys.argv[3:],
            )
        )
    except OSError as error:
        print(f"cannot start {sys.argv[3]}: {error.strerror}", file=sys.stderr)
        sys.exit(_NOT_STARTED)
