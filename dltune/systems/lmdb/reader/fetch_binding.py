"""The native part: pieces of a file read in parallel, or asked for ahead. Built at first use."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from ctypes import c_int, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING

from dltune.base.errors import UsageError
from dltune.native.binding import bound

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHORT = -1


@functools.cache
def load() -> ctypes.CDLL:
    """Raises DltuneError, with the compiler's last lines, when it cannot be built."""
    return bound(
        "fetch",
        [Path(__file__).with_name("fetch.cc")],
        "the reader",
        {
            "dltune_fetch": (c_int, c_int, c_uint64, c_void_p, c_void_p, c_uint),
            "dltune_populate": (None, c_void_p, c_uint64),
            "dltune_advise": (None, c_int, c_uint64, c_void_p, c_void_p, c_uint64),
        },
        flags=("-pthread",),
    )


def fetch(descriptor: int, pieces: NDArray[np.uint64], memory: int, parallel: int) -> None:
    """Read pieces, (n, 4) rows of file offset, length, bytes that must be there and place, to the
    address `memory` + place; at most `parallel` requests in flight. The GIL is free meanwhile.

    Raises UsageError when storage fails or the file ends too early.
    """
    import numpy as np

    pieces = np.ascontiguousarray(pieces, "<u8")
    code = load().dltune_fetch(descriptor, len(pieces), pieces.ctypes.data, memory, parallel)
    if code == SHORT:
        raise UsageError("the file ends inside a record", remedy="restore it, or copy it again")
    if code == errno.EINVAL:
        raise UsageError(
            "the file system refuses direct reads (O_DIRECT) with this alignment",
            remedy="pass direct=False",
        )
    if code:
        raise UsageError(f"the file cannot be read: {os.strerror(code)}", remedy=None)


def advise(
    descriptor: int, offsets: NDArray[np.uint64], lengths: NDArray[np.unsignedinteger], step: int
) -> None:
    """Ask the kernel to read pieces ahead, at most `step` bytes a call."""
    import numpy as np

    offsets = np.ascontiguousarray(offsets, "<u8")
    lengths = np.ascontiguousarray(lengths, "<u8")
    load().dltune_advise(
        descriptor, len(offsets), offsets.ctypes.data, lengths.ctypes.data, max(step, 4096)
    )
