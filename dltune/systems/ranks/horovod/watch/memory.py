"""Contents of another process's memory, read without stopping it.

A thread that sleeps or waits shows its stack pointer in /proc/PID/task/TID/syscall, and
/proc/PID/mem holds its stack. A thread that runs shows nothing, and must be sampled again.
"""

from __future__ import annotations

import array
import os
from collections.abc import Sequence

from dltune.system.kernel_files import read

# bytes of a stack that are read, from its top: more than MPI, gloo and TensorFlow's pools put there
DEPTH = 64 << 10
# bytes of the longest call through a register or a pointer on x86-64
_LONGEST_CALL = 7


class Memory:
    """Use as a context manager. Raises OSError without permission to read the process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def read(self, at: int, size: int) -> bytes:
        """Fewer bytes where a mapping ends; none where there is nothing."""
        try:
            return os.pread(self._handle, size, at)
        except (OSError, OverflowError):
            return b""

    def stack(self, tid: int) -> Sequence[int] | None:
        """The words of a thread's stack, the innermost first; None while it runs."""
        fields = (read(f"/proc/{self.pid}/task/{tid}/syscall") or b"").split()
        # the call's number and arguments, the stack pointer, the program counter; or "running"
        if len(fields) < 3:
            return None
        data = self.read(int(fields[-2], 16), DEPTH)
        return array.array("Q", data[: len(data) // 8 * 8]) if data else None

    def is_return(self, address: int) -> bool:
        """True if the instruction before can be a call. Elsewhere than on x86-64 any address can be
        a return address."""
        if os.uname().machine != "x86_64":
            return True
        code = self.read(address - _LONGEST_CALL, _LONGEST_CALL)
        if len(code) < _LONGEST_CALL:
            return False
        # E8 and a distance; FF /2 with an operand of any length
        return code[-5] == 0xE8 or any(
            code[-length] == 0xFF and code[1 - length] >> 3 & 7 == 2
            for length in range(2, _LONGEST_CALL + 1)
        )
