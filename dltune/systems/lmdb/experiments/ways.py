"""The ways of reading that are compared: the task of each run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from dltune.schemas.io import Method, Walk
from dltune.systems.lmdb.experiments.readers import Outcome, Task
from dltune.systems.lmdb.experiments.records import Records

KIB, MIB = 1 << 10, 1 << 20
# Fig. 5.1 goes from 4 KiB to 1 GiB; from 16 MiB on nothing changes but the memory that is taken
BLOCKS = (4 * KIB, 64 * KIB, 1 * MIB, 16 * MIB)
METHODS: tuple[Method, ...] = ("mmap", "pread", "direct")
# requests at once and their size, of which the best is the storage's ceiling
CEILINGS = ((1, 4 * MIB), (4, 1 * MIB), (4, 4 * MIB), (8, 4 * MIB))
# records hinted ahead, about a batch
AHEAD = 64
SEED = 20240


@dataclass(frozen=True)
class Way:
    """`kind` names it: ("strided", readers, walk, method), ("block", method, size), ("shuffled",
    method, advised, ahead), ("seek",), ("ceiling", parallel, size).

    Of its runs: `outcomes` of the readers; `storage`: bytes that came from storage, None where
    the kernel has no count.
    """

    kind: tuple[object, ...]
    task: Task
    outcomes: list[list[Outcome]] = field(default_factory=list)
    storage: list[int | None] = field(default_factory=list)


def ways(
    records: Records,
    window: int,
    readers: Sequence[int],
    *,
    seconds: float,
    hint_step: int,
    cursor: bool,
    direct: bool,
) -> list[Way]:
    """Everything that is compared on these records and the file's first `window` bytes.

    `cursor`: the format's library passes the others' records (LMDB). `direct`: the file system
    takes O_DIRECT.
    """
    base = Task("mmap", 1, records.offsets, records.sizes, seconds, hint_step=hint_step)
    methods: list[Method] = [m for m in METHODS if direct or m != "direct"]
    walks: list[Walk] = ["cursor", "offsets"] if cursor else ["offsets"]
    straight: Method = "direct" if direct else "pread"
    made = []
    for count in readers:
        for walk in walks:
            task = replace(base, readers=count, walk=walk)
            made.append(Way(("strided", count, walk, "mmap"), task))
        task = replace(base, readers=count, method=straight)
        made.append(Way(("strided", count, "offsets", straight), task))
    for method in methods:
        for block in BLOCKS:
            if block <= window:
                task = _in_blocks(replace(base, method=method), window, block)
                made.append(Way(("block", method, block), task))
    made += list(_shuffled(base, records))
    if cursor:
        made.append(Way(("seek",), replace(base, walk="cursor", passing=True)))
    for parallel, block in CEILINGS:
        if block * parallel <= window:
            task = replace(base, method=straight, readers=parallel, apart=True)
            made.append(Way(("ceiling", parallel, block), _in_blocks(task, window, block)))
    return made


def _in_blocks(task: Task, window: int, block: int) -> Task:
    """Front to back."""
    offsets = range(0, max(1, window - block + 1), block)
    return replace(task, offsets=offsets, sizes=[min(block, window)] * len(offsets))


def _shuffled(base: Task, records: Records) -> Iterator[Way]:
    order = list(range(len(records.offsets)))
    random.Random(SEED).shuffle(order)
    task = replace(
        base,
        offsets=[records.offsets[at] for at in order],
        sizes=[records.sizes[at] for at in order],
    )
    compared: tuple[tuple[Method, bool, int], ...] = (
        ("mmap", False, 0),
        ("mmap", True, 0),
        ("mmap", True, AHEAD),
        ("pread", True, 0),
    )
    for method, advised, ahead in compared:
        kind = ("shuffled", method, advised, ahead)
        yield Way(kind, replace(task, method=method, advised=advised, ahead=ahead))
