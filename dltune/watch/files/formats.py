"""The format of a data file, from its first bytes: names are wrong more often."""

from __future__ import annotations

import struct

from dltune.schemas.io import FileFormat

HEAD = 512  # bytes from the front that identify the format

_LMDB = struct.pack("<I", 0xBEEFC0DE)
# what stands at an offset. The meta page's header is 16 bytes in LMDB 0.9, 24 in 1.0
_MAGIC: tuple[tuple[int, bytes, FileFormat], ...] = (
    (16, _LMDB, "lmdb"),
    (24, _LMDB, "lmdb"),
    (0, b"\x93NUMPY", "npy"),
    (0, b"ARROW1", "arrow"),
    (0, b"FEA1", "arrow"),
    (0, b"PAR1", "parquet"),
    (0, b"\x89HDF\r\n\x1a\n", "hdf5"),
    (257, b"ustar", "tar"),
)
_CRC_POLYNOMIAL, _CRC_DELTA = 0x82F63B78, 0xA282EAD8


def recognise(head: bytes, name: str, size: int) -> FileFormat | None:
    """Return the format of a file whose first `HEAD` bytes are `head`.

    "other" for possible data of no format known here; None for files without data: programs,
    libraries, compiled Python, archives of code.
    """
    if head.startswith((b"\x7fELF", b"#!")) or name.endswith((".pyc", ".so", ".py", ".jar")):
        return None
    for offset, magic, kind in _MAGIC:
        if head.startswith(magic, offset):
            return kind
    if head.startswith(b"PK\x03\x04"):
        return "npz" if name.endswith(".npz") else None
    if _is_safetensors(head, size):
        return "safetensors"
    if _is_tfrecord(head, size):
        return "tfrecord"
    return "other"


def _is_safetensors(head: bytes, size: int) -> bool:
    """A length in 8 bytes, then so many bytes of JSON."""
    return (
        len(head) > 9 and 2 <= int.from_bytes(head[:8], "little") <= size - 8 and head[8:9] == b"{"
    )


def _is_tfrecord(head: bytes, size: int) -> bool:
    """A length in 8 bytes, then its masked CRC-32C."""
    if len(head) < 12:
        return False
    crc = crc32c(head[:8])
    masked = ((crc >> 15 | crc << 17) + _CRC_DELTA) & 0xFFFFFFFF
    return (
        int.from_bytes(head[8:12], "little") == masked
        and int.from_bytes(head[:8], "little") + 16 <= size
    )


def crc32c(data: bytes) -> int:
    """The Castagnoli CRC of a few bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CRC_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
