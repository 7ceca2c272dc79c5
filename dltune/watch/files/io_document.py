"""The document of a watch, with figures of each data file.

The figures of a data file are its bytes, faults, calls, and the pattern of access.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from dltune import __version__
from dltune.base import documents
from dltune.base.formatting import some
from dltune.findings.evidence import Evidence
from dltune.findings.rule import apply_rules
from dltune.schemas import io
from dltune.watch.files import accesses
from dltune.watch.files.accesses import AROUND, PAGE
from dltune.watch.files.data_files import Key, Known
from dltune.watch.files.io_watch import FileUse, IoProcess, IoThread, Watch

Users = list[tuple[IoProcess, FileUse]]

# Figures of data files

# number of pieces of a file by which its faults are counted, and of reported pieces
HOT_PIECES, HOT = 64, 8


def data_files(watch: Watch) -> tuple[io.DataFile, ...]:
    """Return the figures of the data files, those with the most bytes first."""
    uses: dict[Key, Users] = {}
    for seen in watch.processes.values():
        for key, use in seen.files.items():
            uses.setdefault(key, []).append((seen, use))
    copied = _copied(watch)
    direct = _direct_bytes(watch, uses)
    files = [
        _file(watch, key, watch.files.known[key], users, copied.get(key), direct.get(key))
        for key, users in uses.items()
    ]
    weight = {file.path: (file.storage_bytes or 0) + (file.asked or 0) for file in files}
    return tuple(sorted(files, key=lambda file: (-weight[file.path], file.path)))


def _file(
    watch: Watch,
    key: Key,
    known: Known,
    users: Users,
    copied: int | None,
    direct: int | None,
) -> io.DataFile:
    touched = sum(use.touched + _unsurveyed(seen, key) for seen, use in users)
    is_mapped = any(use.mapped for _, use in users)
    asked = (touched if is_mapped else 0) + (copied or 0)
    came = known.came if direct is None else max(known.came or 0, direct)
    sizes: Counter[int] = Counter()
    for _, use in users:
        for size, n in use.sizes.items():
            sizes[1 << max(0, size - 1).bit_length()] += n
    major, minor = _faults(watch, key)
    by_process = watch.faults.processes.get(key, {})
    pages = set().union(*by_process.values())
    return io.DataFile(
        path=known.path,
        format=known.format,
        size=known.size,
        device=known.storage.device,
        processes=tuple(sorted({seen.pid for seen, _ in users})),
        mapped=max(use.mapped for _, use in users),
        resident=sum(u.resident + _unsurveyed(s, key) for s, u in users) if is_mapped else None,
        cached=known.last.now if known.last else None,
        storage_bytes=came,
        asked=asked or None,
        amplification=_amplification(known, users, copied, direct),
        advice=next((use.advice for _, use in users if use.advice), None),
        direct=any(use.direct for _, use in users),
        major=major,
        minor=minor,
        shared=sum(map(len, by_process.values())) / len(pages) if pages else None,
        hot_size=-(-known.size // HOT_PIECES) or 1,
        hot=_hot(watch.faults.pages.get(key, Counter()), known.size),
        requests=tuple(io.Request(size, sizes[size]) for size in sorted(sizes)),
        pattern=_pattern(watch, key, users),
    )


def _amplification(
    known: Known, users: Users, copied: int | None, direct: int | None
) -> float | None:
    """Return the bytes from storage per byte used, both up to the last sample that covers both."""
    used = sum(use.touched for _, use in users if use.mapped) + (copied or 0)
    if known.beside is None or not used:
        return None
    return max(direct or 0, known.beside) / used


def _unsurveyed(seen: IoProcess, key: Key) -> int:
    """Bytes that a process touched after the last survey of its mappings: the largest one's."""
    sizes = {of: use.mapped for of, use in seen.files.items() if use.mapped}
    largest = max(sizes, key=lambda of: sizes[of], default=None)
    return max(0, seen.rss_file - seen.rss_surveyed) if key == largest else 0


def _hot(pages: Counter[int], size: int) -> tuple[tuple[int, int], ...]:
    piece = -(-size // HOT_PIECES) or 1
    found: Counter[int] = Counter()
    for page, n in pages.items():
        found[page * PAGE // piece * piece] += n
    return tuple(found.most_common(HOT))


def _faults(watch: Watch, key: Key) -> tuple[int | None, int | None]:
    """Return the major and minor faults on a file: each thread's counts of the whole time, times
    the file's share of the faults in its bursts."""
    if not watch.faults.threads:
        return None, None
    major = minor = 0.0
    for seen in watch.processes.values():
        for (tid, _), thread in seen.threads.items():
            sampled = watch.faults.threads.get((seen.pid, tid))
            if sampled is None or key not in sampled.files:
                continue
            of_file, used = sampled.files[key], thread.used.stat
            if sampled.major:
                major += used.major * of_file.major / sampled.major
            if sampled.minor:
                minor += used.minor * of_file.minor / sampled.minor
    return round(major), round(minor)


def _copied(watch: Watch) -> dict[Key, int]:
    """Return the bytes that read calls copied out of each file.

    Calls that move a descriptor's position are counted by it. Calls with an explicit offset are the
    rest of a process's count, shared among the files whose calls were seen waiting by the bytes
    that were seen; a process without observed calls is left out.
    """
    found: Counter[Key] = Counter()
    for seen in watch.processes.values():
        moved = {key: use.progress for key, use in seen.files.items() if use.progress}
        found.update(moved)
        if (reads := seen.reads) is None:
            continue
        left = reads.copied - sum(moved.values())
        seen_bytes = {
            key: sum(size * n for size, n in use.sizes.items())
            for key, use in seen.files.items()
            if use.sizes and not use.progress
        }
        total = sum(seen_bytes.values())
        if left > 0 and total:
            for key, size in seen_bytes.items():
                found[key] += round(left * size / total)
    return found


def _direct_bytes(watch: Watch, uses: Mapping[Key, Users]) -> dict[Key, int]:
    """Return the bytes read past the page cache: the processes' reads from storage minus the bytes
    that came into the cache, when there is one such file."""
    keys = [key for key, users in uses.items() if any(use.direct for _, use in users)]
    if len(keys) != 1:
        return {}
    total = sum(reads.storage for seen in watch.processes.values() if (reads := seen.reads))
    total -= sum(known.came or 0 for known in watch.files.known.values())
    return {keys[0]: total} if total > 0 else {}


def _pattern(watch: Watch, key: Key, users: Users) -> io.Pattern:
    """Classify each thread by the best source that it has; the pattern with the most offsets
    wins."""
    votes: list[tuple[io.Source, accesses.Pattern, int]] = []
    for sampled in watch.faults.threads.values():
        if key in sampled.files:
            bursts = sampled.files[key].series
            offsets = sum(map(len, bursts))
            votes.append(("faults", accesses.classify(bursts, AROUND), offsets))
    if not any(found.kind != "unknown" for _, found, _ in votes):
        for _, use in users:
            for tid, calls in use.calls.items():
                first, last = use.copied.get(tid, (0, 0))
                read = last - first if last > first else None
                votes.append(("calls", accesses.classify_sampled(calls, read), len(calls)))
    if not any(found.kind != "unknown" for _, found, _ in votes):
        for seen, use in users:
            reads = seen.reads
            read = reads.copied if reads else None
            for positions in use.positions.values():
                series = [(position, 1) for position in positions]
                found = accesses.classify_sampled(series, read)
                votes.append(("positions", found, len(series)))
    known = [vote for vote in votes if vote[1].kind != "unknown"]
    offsets = sum(n for _, _, n in votes)
    if not known:
        return io.Pattern("unknown", None, offsets, None, None, 0.0)
    weights: Counter[io.PatternKind] = Counter()
    for _, found, n in known:
        weights[found.kind] += n
    kind, weight = weights.most_common(1)[0]
    source, best, _ = max((v for v in known if v[1].kind == kind), key=lambda vote: vote[2])
    stride = best.stride if kind in ("strided", "mixed") else None
    share = weight / max(1, offsets)
    return io.Pattern(kind, source, offsets, stride, best.run, share)


# The document

# of a thread's time asleep for storage and more it was reading
READING = 0.01


def assemble(watch: Watch, subject: str, partial: str | None) -> io.Io:
    """Return the document of a watch, with the conclusions from it."""
    read = data_files(watch)
    job_cpu = sum(thread.used.cpu for thread in watch.threads())
    seen = io.Watch(
        seconds=watch.ended - watch.began,
        faults_by="counters" if watch.faults.refused else "events",
        files=read,
        processes=tuple(_process(seen) for seen in watch.processes.values()),
        pressure=watch.pressure,
        lines=watch.lines.lines(),
        cost=io.Cost(watch.cpu, watch.looks, watch.cpu / job_cpu if job_cpu else None),
    )
    places = tuple({k.storage.device: k.storage for k in watch.files.known.values()}.values())
    hidden = tuple(_unseen(watch, places, read))
    document = io.Io(
        schema=io.SCHEMA,
        created=documents.now(),
        dltune=__version__,
        subject=subject,
        partial=partial,
        storage=places,
        watch=seen,
        experiment=None,
        findings=(),
        unseen=hidden,
    )
    return msgspec.structs.replace(document, findings=apply_rules(Evidence(io=document)))


def _process(seen: IoProcess) -> io.Process:
    # a thread's number can be reused: the last thread with the number represents it
    threads = {tid: thread for (tid, _), thread in seen.threads.items()}
    reads = seen.reads
    used = seen.last_stat.since(seen.first_stat)
    return io.Process(
        pid=seen.pid,
        parent=seen.parent,
        command=seen.command,
        user=seen.owner,
        seconds=seen.until - seen.since,
        ended=seen.ended,
        threads=tuple(_thread(tid, thread) for tid, thread in threads.items()),
        threads_ended=len(seen.threads) - len(seen.running & seen.threads.keys()),
        major=used.major,
        minor=used.minor,
        read_calls=reads.calls if reads else None,
        read=reads.copied if reads else None,
        storage_bytes=reads.storage if reads else None,
    )


def _thread(tid: int, seen: IoThread) -> io.Thread:
    seconds = max(0.0, seen.until - seen.since)
    used = seen.used
    waiting = min(seen.waited, seconds)
    reading = waiting + used.stat.kernel + (used.queued or 0.0)
    reads = seen.waits > 0 and waiting >= READING * seconds and reading > 0
    return io.Thread(
        tid=tid,
        name=used.stat.name,
        seconds=seconds,
        looks=seen.looks,
        cpu=used.cpu,
        kernel=used.stat.kernel,
        queued=used.queued,
        voluntary=used.voluntary,
        involuntary=used.involuntary,
        waiting=waiting,
        sleep_share=waiting / reading if reads else None,
        major=used.stat.major,
        minor=used.stat.minor,
    )


def _unseen(
    watch: Watch, places: Sequence[io.Storage], files: Sequence[io.DataFile]
) -> Iterator[str]:
    """Yield a sentence for each thing that a watch could not see, with the reason and a remedy."""
    hidden = [seen for seen in watch.processes.values() if not seen.may_look]
    if hidden:
        users = ", ".join(sorted({seen.owner for seen in hidden}))
        pids = ", ".join(str(seen.pid) for seen in hidden[:8])
        yield (
            f"files, read calls and storage bytes of {len(hidden)} of {len(watch.processes)} "
            f"processes of {users} are hidden from this user (pid {pids}); context "
            "switches, waits for a core and fault counts are complete"
        )
    if refused := watch.faults.refused:
        remedy = f" ({refused.remedy})" if refused.remedy else ""
        yield (
            f"offsets of page faults are unknown: {refused}{remedy}; fault counts per process are "
            "complete"
        )
    blind = [known.path for known in watch.files.known.values() if known.last is None]
    if blind:
        yield (
            f"the cached share of {some(blind, 2)} is unknown: this kernel has no cachestat, and "
            "mincore is reliable only for files that this user owns"
        )
    for place in places:
        if not place.counted and any(file.device == place.device for file in files):
            yield (
                f"the kernel does not count reads from {place.kind} ({place.mount}): bytes from "
                "storage are the growth of the page cache instead"
            )
    if not watch.pressure:
        yield "pressure is unknown: this kernel does not record it (PSI)"
    if not watch.lines.lines() and any(thread.waits for thread in watch.threads()):
        reason = watch.lines.failure or "no waiting thread had a Python stack"
        yield f"the Python line that waits is unknown: {reason}"
    if any(thread.last.queued is None for thread in watch.threads()):
        yield "waits for a core are unknown: this kernel has no scheduler statistics (schedstat)"
