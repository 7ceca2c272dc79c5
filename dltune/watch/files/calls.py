"""Threads that wait for storage, and the cause of the wait: a read call, or a page fault.

/proc/PID/task/TID/syscall has the number and arguments of the call that a sleeping thread is in,
and -1 for a thread that sleeps in a page fault. It needs permission to inspect the process.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Literal

from dltune.system.kernel_files import read
from dltune.system.proc import stat

# calls that read a file, by number: which of their arguments is the size (None for those whose
# sizes are in a vector in the process's memory) and which the offset
_READS: dict[str, dict[int, tuple[int | None, int | None]]] = {
    "x86_64": {0: (2, None), 17: (2, 3), 19: (None, None), 295: (None, 3), 327: (None, 3)},
    "aarch64": {63: (2, None), 67: (2, 3), 65: (None, None), 69: (None, 3), 286: (None, 3)},
}
# sleeping in a page fault, but for a lock and not for storage
_LOCKS = (b"rwsem", b"mutex", b"futex", b"rt_mutex")


@dataclass(frozen=True)
class Wait:
    """A thread that waits for storage.

    `descriptor`, `size` and `offset` are of its call as far as they are known; `offset` is None
    for a call that reads from the descriptor's position. All None in a page fault.
    """

    cause: Literal["call", "fault", "unknown"]
    descriptor: int | None = None
    size: int | None = None
    offset: int | None = None


def waiting(pid: int, tid: int, may_look: bool) -> Wait | None:
    """Return the thread's wait; None when it does not wait for storage, or has ended.

    Without permission to inspect the process, a thread in uninterruptible sleep counts as waiting
    for storage.
    """
    state = stat.state(pid, tid)
    if state is None or state not in "DS" or (state == "S" and not may_look):
        return None
    if not may_look:
        return Wait("unknown")
    folder = f"/proc/{pid}/task/{tid}"
    return parse(read(f"{folder}/syscall") or b"", state, read(f"{folder}/wchan") or b"")


def parse(call: bytes, state: str, place: bytes) -> Wait | None:
    """Parse the contents of `syscall` and `wchan`. A read call in interruptible sleep can be for a
    pipe or a socket: the caller knows the kind of the descriptor."""
    fields = call.split()
    uninterruptible = state == "D"
    if not fields or fields[0] == b"running":
        return Wait("unknown") if uninterruptible else None
    number = int(fields[0])
    if number == -1:
        # a fault on a file system in user space can be interrupted while it waits
        return None if any(lock in place for lock in _LOCKS) else Wait("fault")
    calls = _READS.get(platform.machine())
    if calls is None:  # asleep in some call of an architecture that is not known here: a read?
        return Wait("unknown") if uninterruptible else None
    if number not in calls:
        return None
    arguments = [int(field, 16) for field in fields[1:7]]
    size, offset = (None if at is None else arguments[at] for at in calls[number])
    return Wait("call", arguments[0] & 0xFFFFFFFF, size, offset)
