"""Databases for the reader's tests, and py-lmdb's account of them: the oracle."""

from __future__ import annotations

import random
from pathlib import Path

import lmdb

Records = list[tuple[bytes, bytes]]


def made(folder: Path, sizes: list[int], *, seed: int = 0) -> Records:
    """A database with records of these sizes, of random bytes; what py-lmdb reads of it."""
    noise = random.Random(seed)
    with lmdb.open(str(folder), map_size=1 << 28, sync=False) as env:
        with env.begin(write=True) as txn:
            for number, size in enumerate(sizes):
                txn.put(b"%06d" % number, noise.randbytes(size))
        return held(env)


def held(env: lmdb.Environment) -> Records:
    with env.begin() as txn:
        return [(bytes(key), bytes(value)) for key, value in txn.cursor()]
