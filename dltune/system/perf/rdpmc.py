"""A counter of the calling thread read by the CPU's own instruction: tens of cycles, where a read
by the system call takes hundreds of nanoseconds.

The kernel allows it on x86 for hardware events on a counter (`cap_user_rdpmc` in the event's page;
/sys/bus/event_source/devices/cpu/rdpmc is 1 or 2), and for no software event.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import sys

from dltune.base.errors import UsageError
from dltune.system.perf import syscall
from dltune.system.perf.events import Event
from dltune.system.perf.group import ENABLE
from dltune.system.perf.opening import Opened, open_event
from dltune.system.perf.perf_binding import load

_DONE = 0
# in the event's page
_CAPABILITIES, _USER_RDPMC = 40, 1 << 2


class UserCounter(Opened):
    """One event of the thread that makes it, counting from now on; only that thread may read it.

    Raises UsageError when the event cannot be opened, and when the kernel does not let it be read
    in user space: then `Group` counts it.
    """

    def __init__(self, event: Event) -> None:
        self._handle = open_event(event, flags=syscall.DISABLED)
        # shared and writable, or the kernel would not offer it
        self._map = mmap.mmap(self._handle, mmap.PAGESIZE)
        capabilities = int.from_bytes(self._map[_CAPABILITIES : _CAPABILITIES + 8], sys.byteorder)
        if not capabilities & _USER_RDPMC:
            self.close()
            raise UsageError(
                f"{event.name} cannot be read in user space: the kernel does not allow it",
                remedy=(
                    "read the counter by system call, or as root, for a hardware event on x86: "
                    "echo 1 > /sys/bus/event_source/devices/cpu/rdpmc"
                ),
            )
        self._page = (ctypes.c_char * mmap.PAGESIZE).from_buffer(self._map)
        self._address = ctypes.addressof(self._page)
        self._value = ctypes.c_uint64()
        self._read = load().dltune_rdpmc
        fcntl.ioctl(self._handle, ENABLE, 0)

    def read(self) -> int:
        """Events until now; by the system call while the event has no counter."""
        if self._read(self._address, ctypes.byref(self._value)) == _DONE:
            return self._value.value
        return int.from_bytes(os.read(self._handle, 8), sys.byteorder)

    def close(self) -> None:
        if hasattr(self, "_page"):
            del self._page
        self._map.close()
        os.close(self._handle)
