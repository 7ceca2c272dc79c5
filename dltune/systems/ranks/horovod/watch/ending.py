"""When a process that is not a child of this process ended, and how.

A pidfd gives the moment. The exit code is in the zombie's stat (for processes with permission to
trace it), and from Linux 6.15 on the pidfd keeps it after another process has taken the zombie
away.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct

from dltune.system.proc import stat

# struct pidfd_info as of Linux 6.13, and _IOWR(0xFF, 11, of it); bit 3 of the mask: the exit code
_INFO = struct.Struct("=QQ11Ii")
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_EXIT = 1 << 3


class Ending:
    """Watches for the end of `pid`, which the kernel shows whole to this process.

    Raises OSError when there is no such process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._handle = os.pidfd_open(pid)
        self.code: int | None = None

    def fileno(self) -> int:
        """To be polled: readable once the process has ended."""
        return self._handle

    def ended(self) -> bool:
        """True if it has; `code` is then its exit code, or the signal that ended it as a negative
        number, as soon as the kernel reports it."""
        ready, _, _ = select.select([self._handle], [], [], 0)
        if ready and self.code is None:
            status = self._of_zombie()
            if status is None:
                status = self._after()
            self.code = None if status is None else os.waitstatus_to_exitcode(status)
        return bool(ready)

    def close(self) -> None:
        os.close(self._handle)

    def _of_zombie(self) -> int | None:
        zombie = stat.of_process(self._pid)
        return zombie.exit_code if zombie and zombie.state == "Z" else None

    def _after(self) -> int | None:
        with contextlib.suppress(OSError):
            answer = fcntl.ioctl(self._handle, _GET_INFO, _INFO.pack(_EXIT, *[0] * 13))
            mask, *_, status = _INFO.unpack(answer)
            if mask & _EXIT:
                return int(status)
        return None
