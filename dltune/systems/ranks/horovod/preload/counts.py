"""Files of the preloaded library: one per background thread."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Counts of one background thread from its first cache synchronisation to Horovod's shutdown.

    `seconds` between the two, `cpu` those on a core, `wait` those in the run queue (None when the
    kernel does not report it). `cycles` are cache synchronisations. `tests` of non-blocking
    collectives and of agreements, `sleeps` between them with `slept` seconds in all. Of
    `agreements` on the least sleep, `shortened` cut this thread's sleep short, by `saved` seconds
    in all.
    """

    rank: int
    size: int
    pid: int
    tid: int
    seconds: float
    cpu: float
    wait: float | None
    cycles: int
    collectives: int
    tests: int
    sleeps: int
    slept: float
    agreements: int
    shortened: int
    saved: float
    rests: int
    rested: float


def read(folder: Path) -> list[Counts]:
    """All files in the folder of DLTUNE_SLEEPS, by rank. A rank that was killed left none.

    Raises msgspec.DecodeError when a file is not one of the library's.
    """
    files = folder.glob("sleeps-*.json")
    return sorted(
        (msgspec.json.decode(file.read_bytes(), type=Counts) for file in files),
        key=lambda counts: (counts.rank, counts.tid),
    )
