"""What follows from reading a file in every way."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.io import Experiment, Finding, Storage
from dltune.io.report.diagnosis import Graded, by_gravity
from dltune.words import count, rate, share, size

# a way that is so much faster is worth a sentence
WORTH = 1.25
# of the ceiling: with less the way of reading is at fault, and not the storage
NEAR = 0.8
# for each byte of records
EXTRA = 0.05


def diagnose(experiment: Experiment, place: Storage) -> tuple[Finding, ...]:
    """The gravest first."""
    return by_gravity(
        [
            *_present(experiment),
            *_contention(experiment),
            *_offsets(experiment),
            *_shuffled(experiment, place),
            *_blocks(experiment),
        ]
    )


def _present(experiment: Experiment) -> Iterator[Graded]:
    """The thesis' first comparison (section 3.1.2): what LMDB reaches of what the storage gives."""
    ceiling, reached = experiment.ceiling, experiment.share_of_ceiling
    present = next(run for run in experiment.strided if run.method == "mmap")
    near = reached >= NEAR
    yield Graded(
        1.0 if near else 6.0 * (1 - reached),
        f"one sequential reader through a mapping reaches {'' if near else 'only '}"
        f"{share(reached)} of what the storage gives",
        f"{rate(present.throughput.median)} through a mapping, "
        f"{rate(ceiling.throughput.median)} by {ceiling.requests}",
        None if near else f"read by {ceiling.requests}, at exact offsets",
    )


def _contention(experiment: Experiment) -> Iterator[Graded]:
    """Fig. 3.4: switches and sleep against the number of readers."""
    walk = experiment.strided[0].walk
    runs = [r for r in experiment.strided if r.walk == walk and r.method == "mmap"]
    one, many = min(runs, key=lambda r: r.readers), max(runs, key=lambda r: r.readers)
    if many.readers == one.readers:
        return
    gain = many.throughput.median / max(1.0, one.throughput.median)
    full = one.throughput.median >= NEAR * experiment.ceiling.throughput.median
    more = many.switches.median / max(1e-9, one.switches.median) if one.switches.median else None
    times = f", {more:.1f} times as many" if more is not None else ""
    evidence = (
        f"{rate(one.throughput.median)} with {one.readers}, {rate(many.throughput.median)} with "
        f"{many.readers}; voluntary switches for a MiB of records {count(one.switches.median)} and "
        f"{count(many.switches.median)}{times}; asleep {share(one.sleep_share.median)} and "
        f"{share(many.sleep_share.median)} of the time"
    )
    if gain >= WORTH:
        yield Graded(
            1.0,
            f"{many.readers} strided readers are {gain:.1f} times as fast as {one.readers}",
            evidence,
        )
    elif full:
        yield Graded(
            2.0,
            f"one reader takes what the storage gives; {many.readers} strided ones only sleep and "
            "wake more often for it",
            evidence,
            "let one process of the node read, and the others take from it",
        )
    else:
        yield Graded(
            4.0,
            f"{many.readers} strided readers are no faster than {one.readers}: they fault on the "
            "same pages and sleep for the same reads",
            evidence,
            "let one process of the node read for all, in large blocks, or let each read its own "
            "records by exact offset",
        )


def _offsets(experiment: Experiment) -> Iterator[Graded]:
    """Fig. 4.2 and section 5.2.2: what passing the others' records costs."""
    cursor = {r.readers: r for r in experiment.strided if r.walk == "cursor"}
    if not cursor:
        return
    most = max(cursor)
    present = cursor[most]
    others = [r for r in experiment.strided if r.readers == most and r.walk == "offsets"]
    best = max(others, key=lambda r: r.throughput.median)
    gain = best.throughput.median / max(1.0, present.throughput.median)
    if gain >= WORTH:
        fewer = present.switches.median / best.switches.median if best.switches.median else 0.0
        switches = f", {fewer:.0f} times fewer switches" if fewer >= 1 else ""
        yield Graded(
            5.0,
            f"{most} readers that know where their records lie are {gain:.1f} times as fast",
            f"{rate(best.throughput.median)} by exact offsets ({best.method}), "
            f"{rate(present.throughput.median)} passing the others' records{switches}",
            "take offsets from the index (dltune lmdb index) instead of LMDB's cursor",
        )
    if present.extra >= EXTRA:
        yield Graded(
            2.0,
            f"{most} readers touch {share(present.extra)} more than their records",
            "pages of the others' records that LMDB's cursor passes; records of "
            f"{size(experiment.mean_size)}",
            "take offsets from the index (dltune lmdb index) instead of LMDB's cursor",
        )


def _shuffled(experiment: Experiment, place: Storage) -> Iterator[Graded]:
    plain = {(r.method, r.advised, r.ahead > 0): r for r in experiment.shuffled}
    normal, random = plain["mmap", False, False], plain["mmap", True, False]
    hinted = plain["mmap", True, True]
    better = max((normal, random), key=lambda r: r.throughput.median)
    gain = hinted.throughput.median / max(1.0, better.throughput.median)
    if gain >= WORTH:
        yield Graded(
            5.5,
            f"shuffled records are read {gain:.1f} times as fast when the kernel is told which "
            "come next",
            f"{rate(hinted.throughput.median)} with hints {hinted.ahead} records ahead, "
            f"{rate(normal.throughput.median)} with read-ahead and "
            f"{rate(random.throughput.median)} without",
            "give hints (posix_fadvise WILLNEED) from the sampler's order and the index",
        )
    ratio = random.throughput.median / max(1.0, normal.throughput.median)
    times = max(ratio, 1 / ratio if ratio else 1.0)
    if times >= WORTH:
        faster, setting = (
            ("without", "readahead=False in py-lmdb") if ratio > 1 else ("with", "readahead=True")
        )
        ahead = f" of {size(place.read_ahead)}" if place.read_ahead else ""
        yield Graded(
            3.0,
            f"shuffled records are read {times:.1f} times as fast {faster} read-ahead{ahead}",
            f"{rate(normal.throughput.median)} with, {rate(random.throughput.median)} without",
            f"open the file accordingly: {setting}, MADV_RANDOM or not elsewhere",
        )


def _blocks(experiment: Experiment) -> Iterator[Graded]:
    """Fig. 5.1: block sizes."""
    straight = [b for b in experiment.blocks if b.method == experiment.ceiling.method] or [
        b for b in experiment.blocks if b.method != "mmap"
    ]
    small, best = straight[0], max(straight, key=lambda b: b.throughput.median)
    gain = best.throughput.median / max(1.0, small.throughput.median)
    if gain < WORTH:
        return
    mapped = max(b.throughput.median for b in experiment.blocks if b.method == "mmap")
    yield Graded(
        2.5,
        f"blocks of {size(best.block)} are read {gain:.1f} times as fast as those of "
        f"{size(small.block)}",
        f"{best.method}: {rate(best.throughput.median)} against {rate(small.throughput.median)}; "
        f"a mapping gives {rate(mapped)} at its best, whatever the block",
        f"read {size(best.block)} at a time: join neighbouring records into one read",
    )
