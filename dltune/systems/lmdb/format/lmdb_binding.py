"""The native part: built at first use, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_int32, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.native.binding import bound
from dltune.systems.lmdb.format.datafile import DataFile
from dltune.systems.lmdb.format.meta import Db

Tell = Callable[[int, int], None]  # leaf pages done, and in all, of the tree being walked

_TELL = ctypes.CFUNCTYPE(c_int, c_uint64, c_uint64)
_WHY_BYTES = 1 << 16


class File(ctypes.Structure):
    """Layout of source.h's File."""

    _fields_ = (
        ("descriptor", c_int32),
        ("version", c_uint32),
        ("page_size", c_uint32),
        ("size", c_uint64),
        ("last_page", c_uint64),
        ("txn", c_uint64),
    )


class Records(ctypes.Structure):
    """Layout of index.cc's Records."""

    _fields_ = (
        ("count", c_uint64),
        ("offsets", POINTER(c_uint64)),
        ("sizes", POINTER(c_uint32)),
        ("keys", POINTER(c_uint8)),
        ("key_ends", POINTER(c_uint64)),
        ("named_count", c_uint64),
        ("names", POINTER(c_uint8)),
        ("name_ends", POINTER(c_uint64)),
        ("named", POINTER(Db)),
    )


class Counts(ctypes.Structure):
    """Layout of verify.cc's Counts."""

    _fields_ = tuple((n, c_uint64) for n in ("databases", "records", "used", "free", "faults"))


@functools.cache
def load() -> ctypes.CDLL:
    """Raises DltuneError, with the compiler's last lines, when it cannot be built."""
    here, db, count = Path(__file__).parent, POINTER(Db), POINTER(Counts)
    why = (c_char_p, c_int)
    return bound(
        "lmdb",
        [here / "index.cc", here / "verify.cc"],
        "the LMDB reader",
        {
            "dltune_lmdb_scan_new": (c_void_p, POINTER(File)),
            "dltune_lmdb_scan_delete": (None, c_void_p),
            "dltune_lmdb_index": (c_int, c_void_p, db, _TELL, POINTER(Records), *why),
            "dltune_lmdb_settle": (c_int, c_void_p, db, *why),
            "dltune_lmdb_verify": (c_int, POINTER(File), db, db, _TELL, count, *why),
        },
        *(File, Db, Records, Counts),
    )


class Call:
    """Calls into the native part for one file: errors become UsageError, `tell` can raise."""

    def __init__(self, data: DataFile, tell: Tell | None) -> None:
        meta = data.meta
        self.file = File(
            data.descriptor, meta.version, meta.page_size, data.size, meta.last_page, meta.txn
        )
        self._path = data.path
        self._why = ctypes.create_string_buffer(_WHY_BYTES)
        self._raised: BaseException | None = None

        def told(done: int, all_: int) -> int:
            try:
                if tell:
                    tell(done, all_)
            except BaseException as error:  # an interrupt too: ctypes would swallow it
                self._raised = error
                return 1
            return 0

        self.tell = _TELL(told)

    def __call__(self, function: Callable[..., int], *arguments: object) -> str:
        """Return the function's message in `why`. Raises UsageError for a fault."""
        code = function(*arguments, self._why, _WHY_BYTES)
        why = self._why.value.decode(errors="replace")
        if self._raised:
            raise self._raised
        if code == 1:
            raise UsageError(
                f"{self._path} is damaged: {why}",
                remedy="restore the file, or copy it again; `dltune lmdb verify` lists all faults",
            )
        if code:
            raise UsageError(
                f"there is not enough memory to read {self._path}",
                remedy="use a machine with more memory",
            )
        return why
