"""The cores of one of several devices of this machine, which have equal parts of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cores(devices: int) -> Iterator[int]:
    """Yield the number of cores of one of so many devices; processes started meanwhile run on these
    alone."""
    own = sorted(os.sched_getaffinity(0))
    portion = own[: max(1, len(own) // devices)]
    os.sched_setaffinity(0, portion)
    try:
        yield len(portion)
    finally:
        os.sched_setaffinity(0, own)
