"""Decisions on reading training data, from an io document's measurements.

From an experiment on a file every choice is the smallest or simplest setting within `NEAR` of the
best measured setting. A job that was watched shows the files and their access patterns but not the
results of other ways: then the reader's own defaults are planned, and that is said.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.base.formatting import rate, size
from dltune.schemas.io import DataFile, Experiment, Io
from dltune.schemas.machine import Machine
from dltune.systems.lmdb.reader.node import SLOTS
from dltune.systems.lmdb.reader.options import AHEAD, PAGE, Options
from dltune.systems.lmdb.section import (
    Access,
    FilePlan,
    Follow,
    IoPlan,
    ReaderPlan,
)

NEAR = 0.95  # of the best throughput: as good
WORTH = 1.05  # times as fast: worth a change
MEMORY_SHARE = 0.5  # part of the machine's memory that a file can fill in the page cache
BUDGET_SHARE = 0.125  # of the machine's memory: the reader's slots
LONGEST_GAP = 1 << 20


def decide(io: Io, machine: Machine, access: Access | None) -> IoPlan:
    """The section for the document's files; `access`: the order in which the job wants records,
    None takes what was seen (an experiment sees none: strided, as data-parallel training reads).

    Raises UsageError when the document has no file that a plan could be made for.
    """
    reasons: list[str] = []
    if io.experiment is not None:
        planned = [_from_experiment(io.experiment, machine, access or "strided", reasons)]
    else:
        assert io.watch is not None  # checked when it was read
        planned = _from_watch(io.watch.files, machine, access, reasons)
    if not planned:
        raise UsageError(
            "the report has no file with a known access pattern: " + "; ".join(reasons),
            remedy="name the pattern with --access, or measure the file: "
            "dltune io-report --file FILE",
        )
    return IoPlan(documents.digest(io), tuple(planned), tuple(reasons))


def _from_experiment(
    found: Experiment, machine: Machine, access: Access, reasons: list[str]
) -> FilePlan:
    fits = _fits(found.size, machine)
    ahead = _ahead(found, reasons)
    reader = None
    if found.format == "lmdb":
        direct = _direct(found, fits, reasons)
        block = _block(found, direct, reasons)
        parallel = max(found.ceiling.parallel, Options.parallel if access == "shuffled" else 1)
        reader = ReaderPlan(
            node=True,
            direct=direct,
            memory=_memory(block * parallel, machine),
            block=block,
            gap=_gap(found, reasons),
            parallel=parallel,
            stagger=_stagger(found, reasons),
        )
    follow = _follow(access, ahead, fits, found.path, reasons)
    return FilePlan(os.path.realpath(found.path), access, reader, ahead, follow)


def _from_watch(
    seen: Iterable[DataFile], machine: Machine, access: Access | None, reasons: list[str]
) -> list[FilePlan]:
    planned = []
    for file in seen:
        kind = access or file.pattern.kind
        if kind == "mixed" or kind == "unknown":
            reasons.append(f"{file.path}: access pattern {kind}")
            continue
        defaults = Options()
        reader = None
        if file.format == "lmdb":
            reader = ReaderPlan(
                node=defaults.node,
                direct=False,
                memory=_memory(defaults.memory // SLOTS, machine),
                block=defaults.block,
                gap=defaults.gap,
                parallel=defaults.parallel,
            )
            reasons.append(
                f"{file.path}: the reader's sizes are defaults, because a watched job shows one "
                "way of reading only; dltune io-report --file measures the others"
            )
        follow = _follow(kind, AHEAD, _fits(file.size, machine), file.path, reasons)
        planned.append(FilePlan(os.path.realpath(file.path), kind, reader, AHEAD, follow))
    return planned


def _follow(access: Access, ahead: int, fits: bool, path: str, reasons: list[str]) -> Follow | None:
    if access != "shuffled":
        return "ahead" if ahead else None
    if fits:
        reasons.append(
            f"{path}: the next offset of a shuffled job cannot be predicted from outside; the file "
            "fits into memory, so all of it is read ahead"
        )
        return "whole"
    reasons.append(
        f"{path}: the next offset of a shuffled job cannot be predicted from outside, and the file "
        "does not fit into memory: use ReadAhead or Reader of dltune.systems.lmdb in the job"
    )
    return None


def _direct(found: Experiment, fits: bool, reasons: list[str]) -> bool:
    best = {
        method: max((b.throughput.median for b in found.blocks if b.method == method), default=0.0)
        for method in ("pread", "direct")
    }
    told = (
        f"cold: {rate(best['direct'])} with O_DIRECT, {rate(best['pread'])} through the page cache"
    )
    if not best["direct"]:
        reasons.append("read through the page cache: the report has no measurement of O_DIRECT")
        return False
    if fits:
        reasons.append(
            f"read through the page cache: the file stays there for later epochs ({told})"
        )
        return False
    direct = best["direct"] > WORTH * best["pread"]
    reasons.append(f"read {'with O_DIRECT' if direct else 'through the page cache'}: {told}")
    return direct


def _block(found: Experiment, direct: bool, reasons: list[str]) -> int:
    method = "direct" if direct else "pread"
    measured = {b.block: b.throughput.median for b in found.blocks if b.method == method}
    aligned = {block: speed for block, speed in measured.items() if block % PAGE == 0}
    if not aligned:
        return Options.block
    best = max(aligned.values())
    block = min(block for block, speed in aligned.items() if speed >= NEAR * best)
    reasons.append(f"requests of {size(block)}: {rate(aligned[block])} (fastest: {rate(best)})")
    return block


def _gap(found: Experiment, reasons: list[str]) -> int:
    """Return the bytes that could be read in the time that a request takes beyond its bytes."""
    latencies = [r.latency.median for r in found.shuffled if not r.ahead and r.method == "pread"]
    speed = found.ceiling.throughput.median
    if not latencies or not speed:
        return Options.gap
    extra = max(0.0, min(latencies) - found.mean_size / speed)
    gap = min(LONGEST_GAP, int(extra * speed) // PAGE * PAGE)
    reasons.append(
        f"gaps of up to {size(gap)} between records are read too, because each extra request costs "
        f"{extra * 1e3:.2f} ms"
    )
    return gap


def _stagger(found: Experiment, reasons: list[str]) -> int | None:
    """The fewest readers that are as good as any number, if more of them are worse."""
    rates: dict[int, float] = {}
    for one in found.strided:
        if one.walk == "offsets" and one.method != "mmap":
            rates[one.readers] = max(rates.get(one.readers, 0.0), one.throughput.median)
    if not rates:
        return None
    best = max(rates.values())
    fewest = min(readers for readers, speed in rates.items() if speed >= NEAR * best)
    if rates[max(rates)] * WORTH > best:
        return None
    reasons.append(
        f"{fewest} reader{'s' * (fewest != 1)} at a time: {rate(best)}; {max(rates)} at a time: "
        f"{rate(rates[max(rates)])}"
    )
    return fewest


def _ahead(found: Experiment, reasons: list[str]) -> int:
    """Bytes of the shortest hints that are as good as any; 0 when they are worth nothing."""
    plain = [r.throughput.median for r in found.shuffled if not r.ahead]
    hinted = {r.ahead: r.throughput.median for r in found.shuffled if r.ahead}
    if not hinted or not plain:
        return AHEAD
    best = max(hinted.values())
    if best < WORTH * max(plain):
        reasons.append(f"no read-ahead hints: {rate(best)} with them, {rate(max(plain))} without")
        return 0
    records = min(ahead for ahead, speed in hinted.items() if speed >= NEAR * best)
    reasons.append(
        f"read-ahead hints {records} records ahead: {rate(hinted[records])}; without hints: "
        f"{rate(max(plain))}"
    )
    return max(PAGE, int(records * found.mean_size))


def _memory(slot: int, machine: Machine) -> int:
    """For slots of this size, within the machine's budget."""
    wanted = max(Options.memory, SLOTS * slot)
    if machine.memory is None:
        return wanted
    return max(4 * PAGE, min(wanted, int(BUDGET_SHARE * machine.memory) // PAGE * PAGE))


def _fits(size: int, machine: Machine) -> bool:
    return machine.memory is not None and size <= MEMORY_SHARE * machine.memory
