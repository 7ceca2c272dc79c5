"""A timeline's file, read in chunks, whole or cut short."""

from __future__ import annotations

import contextlib
import gzip
import os
import sys
import zlib
from pathlib import Path
from typing import BinaryIO

import msgspec

from dltune.base.errors import UsageError
from dltune.systems.ranks.horovod.timeline.recorded import Recording
from dltune.systems.ranks.horovod.timeline.requests import ForeignError, Record, Requests

CHUNK = 4 << 20  # bytes decoded at a time


def recording(path: Path) -> Recording:
    """All that is in a timeline file, gzipped or not, read in chunks.

    Raises UsageError when it cannot be read, is empty or is no Horovod timeline. A file that ends
    in the middle of a record is read up to there.
    """
    requests = Requests()
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if packed:
                with gzip.open(raw) as unpacked:
                    truncated = _feed(unpacked, requests)
            else:
                # Horovod can be writing: its additions come over the end that was there
                truncated = _feed(raw, requests, os.fstat(raw.fileno()).st_size)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UsageError(
            f"{path} is a damaged gzip file", remedy="record the timeline again"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", remedy=None) from None
    except (ForeignError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{path} {error}" if isinstance(error, ForeignError) else f"{path} is damaged: {error}",
            remedy="give a file that Horovod wrote (HOROVOD_TIMELINE)",
        ) from None
    return requests.result(path, truncated)


LONGEST_RECORD = 64 << 20  # bytes; names and shapes are far shorter
# where one record ends and another begins
_BETWEEN = (b'},{"ph"', b'},\n{"')


def _feed(file: BinaryIO | gzip.GzipFile, requests: Requests, size: int = sys.maxsize) -> bool:
    """Decodes chunk after chunk of `size` bytes; whether they end in the middle of a record."""
    decode = msgspec.json.Decoder(list[Record]).decode
    rest, first = b"", True
    while chunk := file.read(min(CHUNK, size)):
        size -= len(chunk)
        rest += chunk
        if first:
            rest = rest.lstrip()
            if not rest:
                continue
            if not rest.startswith(b"["):
                raise ForeignError("is not a Horovod timeline: it does not start with a list")
            rest, first = rest[1:], False
        cut = max(rest.rfind(mark) for mark in _BETWEEN)
        if cut >= 0:
            requests.take(decode(b"[" + rest[: cut + 1] + b"]"))
            rest = rest[cut + 2 :]
        elif len(rest) > LONGEST_RECORD:
            raise ForeignError(f"has a record of more than {LONGEST_RECORD >> 20} MiB")
    if first:
        raise ForeignError("is empty: no collective was recorded")
    rest = rest.strip()
    whole = rest == b"]" or rest.endswith(b"}]")  # a shape ends in ] too
    if whole:
        requests.take(decode(b"[" + rest))
    else:
        with contextlib.suppress(msgspec.DecodeError):  # the last record, if it is there in full
            requests.take(decode(b"[" + rest.rstrip(b",") + b"]"))
    if not requests.events:
        raise ForeignError("ends before its first record")
    return not whole
