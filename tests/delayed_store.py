"""A read-only file system in user space that shows one file, each request after a pause: what a
network store looks like to the kernel. Speaks the kernel's FUSE protocol (version 7.31) over
/dev/fuse; needs root.

    python delayed_store.py FOLDER FILE SECONDS        the file appears as FOLDER/data.mdb
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
import threading
import time

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 14, 15, 17, 18
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET = (
    25,
    26,
    27,
    28,
    29,
    36,
    38,
    42,
)
ROOT, FILE = 1, 2
NAME = b"data.mdb"
HEADER = struct.Struct("<IIQQIIII")
AHEAD = 128 << 10
ASYNC_READ, KEEP_CACHE = 1, 2


def attributes(node: int, size: int) -> bytes:
    mode = 0o40755 if node == ROOT else 0o100644
    return struct.pack(
        "<QQQQQQIIIIIIIIII", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0
    )


class Store:
    def __init__(self, folder: str, path: str, pause: float) -> None:
        self.pause = pause
        self.data = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self.data).st_size
        self.device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0,allow_other"
        library = ctypes.CDLL(None, use_errno=True)
        if library.mount(b"store", folder.encode(), b"fuse.store", 0, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "mount")

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self.device, 1 << 20)
            except OSError as error:
                if error.errno == errno.ENODEV:  # unmounted
                    return
                continue
            _, code, unique, node, *_ = HEADER.unpack_from(request)
            body = request[HEADER.size :]
            if code == READ:
                # requests of several readers wait side by side
                threading.Thread(target=self.read, args=(unique, body), daemon=True).start()
            elif code not in (FORGET, BATCH_FORGET, INTERRUPT):
                self.answer(unique, *self.handle(code, node, body))

    def answer(self, unique: int, code: int, data: bytes = b"") -> None:
        os.write(self.device, struct.pack("<IiQ", 16 + len(data), -code, unique) + data)

    def read(self, unique: int, body: bytes) -> None:
        _, offset, size = struct.unpack_from("<QQI", body)
        time.sleep(self.pause)
        self.answer(unique, 0, os.pread(self.data, size, offset))

    def handle(self, code: int, node: int, body: bytes) -> tuple[int, bytes]:
        if code == INIT:
            _major, _minor, _, _ = struct.unpack_from("<IIII", body)
            told = struct.pack(
                "<IIIIHHIIHHI", 7, 31, AHEAD, ASYNC_READ, 12, 10, 1 << 17, 1, 0, 0, 0
            )
            return 0, told.ljust(64, b"\0")
        if code == LOOKUP:
            if body.rstrip(b"\0") != NAME:
                return errno.ENOENT, b""
            entry = struct.pack("<QQQQII", FILE, 0, 1000, 1000, 0, 0)
            return 0, entry + attributes(FILE, self.size)
        if code == GETATTR:
            return 0, struct.pack("<QII", 1000, 0, 0) + attributes(node, self.size)
        if code in (OPEN, OPENDIR):
            return 0, struct.pack("<QII", 1, KEEP_CACHE, 0)
        if code == STATFS:
            return 0, bytes(80)
        if code in (RELEASE, RELEASEDIR, FLUSH, READDIR, DESTROY):
            return 0, b""
        return errno.ENOSYS, b""


if __name__ == "__main__":
    store = Store(sys.argv[1], sys.argv[2], float(sys.argv[3]))
    print("ready", flush=True)
    store.serve()
