"""Findings from an experiment that reads a data file in several ways.

The rules compare the measured rates of readers with one another, or with the rate of the storage.
Their docstrings name the figures and sections of the thesis.
"""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import count, rate, share, size
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding

# share of the storage's rate; below it, the way of reading is the cause, not the storage
NEAR = 0.8


@rule(
    "mapped-reading",
    "data",
    summary="The rate of one reader through a memory mapping, as in LMDB, compared with the "
    "storage's limit.",
    fix="Read with several requests at once, at exact offsets.",
    order=7,
)
def mapped_reading(evidence: Evidence) -> Iterator[Finding]:
    """Compare the rate of a reader through a mapping, as in LMDB, with the rate of the storage.
    This is the first comparison of the thesis (section 3.1.2)."""
    experiment = evidence.experiment
    runs = experiment.strided if experiment else ()
    mapped = next((run for run in runs if run.method == "mmap"), None)
    if experiment is None or mapped is None:
        return
    ceiling, reached = experiment.ceiling, experiment.share_of_ceiling
    is_near = reached >= NEAR
    yield Finding(
        title=f"one sequential reader through a mapping reaches {'' if is_near else 'only '}"
        f"{share(reached)} of the storage's rate",
        evidence=f"{rate(mapped.throughput.median)} through a mapping, "
        f"{rate(ceiling.throughput.median)} with {ceiling.requests}",
        fix=None if is_near else f"read with {ceiling.requests}, at exact offsets",
        confidence="measured",
    )


# speed relative to another way to read; smaller differences are no finding
MIN_SPEEDUP = 1.25


@rule(
    "exact-offsets",
    "data",
    summary="Readers that know the offsets of their records are faster (thesis, Fig. 4.2 and "
    "section 5.2.2).",
    fix="Take offsets from the index (dltune lmdb index) instead of LMDB's cursor.",
    order=7,
)
def exact_offsets(evidence: Evidence) -> Iterator[Finding]:
    """Find faster readers that know the offsets of their records (thesis, Fig. 4.2 and section
    5.2.2)."""
    strided = evidence.experiment.strided if evidence.experiment else ()
    cursor = {r.readers: r for r in strided if r.walk == "cursor"}
    most = max(cursor, default=0)
    others = [r for r in strided if r.readers == most and r.walk == "offsets"]
    if not others:
        return
    present, best = cursor[most], max(others, key=lambda r: r.throughput.median)
    speedup = best.throughput.median / max(1.0, present.throughput.median)
    if speedup >= MIN_SPEEDUP:
        fewer = present.switches.median / best.switches.median if best.switches.median else 0.0
        switches = f", {fewer:.0f} times fewer switches" if fewer >= 1 else ""
        yield Finding(
            title=f"{most} readers that use exact offsets are {speedup:.1f} times as fast",
            evidence=f"{rate(best.throughput.median)} with exact offsets ({best.method}), "
            f"{rate(present.throughput.median)} when they pass other readers' records{switches}",
            fix="take offsets from the index (dltune lmdb index) instead of LMDB's cursor",
            confidence="measured",
        )


@rule(
    "more-readers",
    "data",
    summary="More readers of one file bring context switches and sleep, but little throughput "
    "(thesis, Fig. 3.4).",
    fix="Let one process per node read for all, or let each process read its own records by exact "
    "offset.",
    order=7,
)
def more_readers(evidence: Evidence) -> Iterator[Finding]:
    """Compare more readers of one file: their rate, switches and sleep (thesis, Fig. 3.4)."""
    experiment = evidence.experiment
    strided = experiment.strided if experiment else ()
    runs = [r for r in strided if r.walk == strided[0].walk and r.method == "mmap"]
    if experiment is None or not runs:
        return
    single, many = min(runs, key=lambda r: r.readers), max(runs, key=lambda r: r.readers)
    if many.readers == single.readers:
        return
    speedup = many.throughput.median / max(1.0, single.throughput.median)
    is_full = single.throughput.median >= NEAR * experiment.ceiling.throughput.median
    more = (
        many.switches.median / max(1e-9, single.switches.median) if single.switches.median else None
    )
    times = f", {more:.1f} times as many" if more is not None else ""
    title, fix = _compare(single.readers, many.readers, speedup, is_full)
    yield Finding(
        title=title,
        evidence=f"{rate(single.throughput.median)} with {single.readers}, "
        f"{rate(many.throughput.median)} with {many.readers}; voluntary switches per MiB of "
        f"records {count(single.switches.median)} and {count(many.switches.median)}{times}; asleep "
        f"{share(single.sleep_share.median)} and {share(many.sleep_share.median)} of the time",
        fix=fix,
        confidence="measured",
    )


def _compare(few: int, many: int, speedup: float, is_full: bool) -> tuple[str, str | None]:
    """Return the title and the fix. `is_full`: one reader reaches the storage's rate."""
    if speedup >= MIN_SPEEDUP:
        return f"{many} strided readers are {speedup:.1f} times as fast as {few}", None
    if is_full:
        return (
            f"one reader reaches the storage's rate; {many} strided readers only sleep and wake up "
            "more often",
            "let one process per node read, and pass the records to the others",
        )
    return (
        f"{many} strided readers are no faster than {few}: they fault on the "
        "same pages and wait for the same reads",
        "let one process per node read for all, in large blocks, or let each read its own "
        "records by exact offset",
    )


# extra bytes per byte of records
EXTRA = 0.05


@rule(
    "passed-records",
    "data",
    summary="Readers touch records of other readers (thesis, Fig. 4.2).",
    fix="Take offsets from the index (dltune lmdb index) instead of LMDB's cursor.",
    order=8,
)
def passed_records(evidence: Evidence) -> Iterator[Finding]:
    """Find readers that touch records of other readers (thesis, Fig. 4.2)."""
    experiment = evidence.experiment
    cursor = [r for r in experiment.strided if r.walk == "cursor"] if experiment else []
    widest = max(cursor, key=lambda r: r.readers, default=None)
    if experiment and widest and widest.extra >= EXTRA:
        yield Finding(
            title=f"{widest.readers} readers touch {share(widest.extra)} more data than their "
            "own records",
            evidence="LMDB's cursor passes pages of other readers' records; a record has "
            f"{size(experiment.mean_size)} on average",
            fix="take offsets from the index (dltune lmdb index) instead of LMDB's cursor",
            confidence="measured",
        )


@rule(
    "unhinted-shuffle",
    "data",
    summary="Hints make shuffled reading of this file faster.",
    fix="Give hints (posix_fadvise WILLNEED) from the sampler's order (dltune plan io).",
    order=6,
)
def unhinted_shuffle(evidence: Evidence) -> Iterator[Finding]:
    """Find hints that make a reader of shuffled records faster."""
    shuffled = evidence.experiment.shuffled if evidence.experiment else ()
    mapped = {(r.advised, r.ahead > 0): r for r in shuffled if r.method == "mmap"}
    if not {(False, False), (True, False), (True, True)} <= mapped.keys():
        return
    normal, random, hinted = mapped[False, False], mapped[True, False], mapped[True, True]
    better = max((normal, random), key=lambda r: r.throughput.median)
    speedup = hinted.throughput.median / max(1.0, better.throughput.median)
    if speedup >= MIN_SPEEDUP:
        yield Finding(
            title=f"shuffled records are read {speedup:.1f} times as fast with hints for the next "
            "records",
            evidence=f"{rate(hinted.throughput.median)} with hints {hinted.ahead} records ahead, "
            f"{rate(normal.throughput.median)} with read-ahead and "
            f"{rate(random.throughput.median)} without",
            fix="give hints (posix_fadvise WILLNEED) from the sampler's order and the index "
            "(dltune plan io)",
            confidence="measured",
        )


@rule(
    "shuffled-read-ahead",
    "data",
    summary="Read-ahead speeds up or slows down shuffled reading of this file.",
    fix="Open the file with or without read-ahead, whichever is faster.",
    order=7,
)
def shuffled_read_ahead(evidence: Evidence) -> Iterator[Finding]:
    """Find read-ahead that speeds up or slows down a reader of shuffled records."""
    shuffled = evidence.experiment.shuffled if evidence.experiment else ()
    mapped = {r.advised: r for r in shuffled if r.method == "mmap" and r.ahead == 0}
    if evidence.io is None or len(mapped) < 2:
        return
    normal, random = mapped[False], mapped[True]
    ratio = random.throughput.median / max(1.0, normal.throughput.median)
    times = max(ratio, 1 / ratio if ratio else 1.0)
    if times >= MIN_SPEEDUP:
        faster, setting = (
            ("without", "readahead=False in py-lmdb") if ratio > 1 else ("with", "readahead=True")
        )
        place = evidence.io.storage[0] if evidence.io.storage else None
        ahead = f" of {size(place.read_ahead)}" if place and place.read_ahead else ""
        yield Finding(
            title=f"shuffled records are read {times:.1f} times as fast {faster} read-ahead{ahead}",
            evidence=f"{rate(normal.throughput.median)} with, {rate(random.throughput.median)} "
            "without",
            fix=f"open the file {faster} read-ahead: {setting}, or MADV_NORMAL and MADV_RANDOM "
            "elsewhere",
            confidence="measured",
        )


@rule(
    "block-size",
    "data",
    summary="Larger blocks are read faster (thesis, Fig. 5.1).",
    fix="Read larger blocks: join neighbouring records into one read.",
    order=8,
)
def block_size(evidence: Evidence) -> Iterator[Finding]:
    """Find larger blocks that are read faster (thesis, Fig. 5.1)."""
    experiment = evidence.experiment
    blocks = experiment.blocks if experiment else ()
    unmapped = [b for b in blocks if experiment and b.method == experiment.ceiling.method] or [
        b for b in blocks if b.method != "mmap"
    ]
    if not unmapped:
        return
    small, best = unmapped[0], max(unmapped, key=lambda b: b.throughput.median)
    speedup = best.throughput.median / max(1.0, small.throughput.median)
    if speedup < MIN_SPEEDUP:
        return
    mapped = max((b.throughput.median for b in blocks if b.method == "mmap"), default=None)
    mapping = f"; a mapping reaches at most {rate(mapped)}, at any block size" if mapped else ""
    yield Finding(
        title=f"blocks of {size(best.block)} are read {speedup:.1f} times as fast as blocks of "
        f"{size(small.block)}",
        evidence=f"{best.method}: {rate(best.throughput.median)} against "
        f"{rate(small.throughput.median)}{mapping}",
        fix=f"read {size(best.block)} at a time: join neighbouring records into one read",
        confidence="measured",
    )
