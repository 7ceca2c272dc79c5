"""One reading process. Standard library only: `python -m dltune.io.report.experiments.reader`.

Takes tasks from stdin, each a line of JSON (`Task`'s fields, and `pieces`, how many follow), then
two arrays of 8-byte integers: offsets and sizes. Answers "ready", waits for a line, reads, and
answers a line of JSON with what it cost. Ends with its stdin.
"""

from __future__ import annotations

import array
import json
import mmap
import os
import resource
import sys
import time
from typing import Any, BinaryIO

PAGE = mmap.PAGESIZE


def main(tasks: BinaryIO) -> None:
    while line := tasks.readline():
        task = json.loads(line)
        offsets, sizes = array.array("q"), array.array("q")
        for numbers in (offsets, sizes):
            numbers.frombytes(tasks.read(8 * task["pieces"]))
        try:
            answer: dict[str, object] = _perform(task, offsets, sizes, tasks)
        except OSError as error:
            answer = {"error": os.strerror(error.errno or 0)}
        print(json.dumps(answer), flush=True)


def _perform(
    task: dict[str, Any], offsets: array.array[int], sizes: array.array[int], tasks: BinaryIO
) -> dict[str, object]:
    direct = task["method"] == "direct"
    flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
    descriptor = os.open(task["path"], flags)
    room = max(sizes, default=0) // PAGE * PAGE + 2 * PAGE
    # a mapping is aligned to pages, as O_DIRECT wants it; touched, so that it is there
    with mmap.mmap(-1, room) as memory:
        buffer = memoryview(memory)
        for at in range(0, room, PAGE):
            buffer[at] = 1
        try:
            if task["method"] == "mmap":
                size = os.fstat(descriptor).st_size
                with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as mapping:
                    if task["advised"]:
                        mapping.madvise(mmap.MADV_RANDOM)
                    return _timed(task, offsets, sizes, descriptor, mapping, buffer, tasks)
            if task["advised"]:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            return _timed(task, offsets, sizes, descriptor, None, buffer, tasks)
        finally:
            buffer.release()
            os.close(descriptor)


def _timed(
    task: dict[str, Any],
    offsets: array.array[int],
    sizes: array.array[int],
    descriptor: int,
    mapping: mmap.mmap | None,
    buffer: memoryview,
    tasks: BinaryIO,
) -> dict[str, object]:
    view = memoryview(mapping) if mapping is not None else None
    print("ready", flush=True)
    tasks.readline()
    before, queued, storage = resource.getrusage(resource.RUSAGE_SELF), _queued(), _storage()
    began = time.monotonic()
    done = _read(task, offsets, sizes, descriptor, view, buffer, began + task["seconds"])
    ended = time.monotonic()
    after = resource.getrusage(resource.RUSAGE_SELF)
    if view is not None:
        view.release()
    return {
        "began": began,
        "ended": ended,
        "bytes": done[0],
        "records": done[1],
        "passed": done[2],
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "queued": _queued() - queued,
        "voluntary": after.ru_nvcsw - before.ru_nvcsw,
        "involuntary": after.ru_nivcsw - before.ru_nivcsw,
        "major": after.ru_majflt - before.ru_majflt,
        "storage": _storage() - storage,
    }


def _read(
    task: dict[str, Any],
    offsets: array.array[int],
    sizes: array.array[int],
    descriptor: int,
    view: memoryview | None,
    buffer: memoryview,
    until: float,
) -> tuple[int, int, int]:
    """Bytes and records read, records passed. `ahead` pieces are hinted before they are read."""
    rank, readers, cursor = task["rank"], task["readers"], task["walk"] == "cursor"
    ahead, step, direct = task["ahead"], task["hint_step"], task["method"] == "direct"
    total = records = passed = 0
    touched = 0
    clock = time.monotonic

    def hint(at: int) -> None:
        # the kernel takes no more of one hint than it reads ahead at most
        end = offsets[at] + sizes[at]
        for start in range(offsets[at], end, step):
            os.posix_fadvise(descriptor, start, min(step, end - start), os.POSIX_FADV_WILLNEED)

    for at in range(min(ahead, len(offsets))):
        hint(at)
    for at in range(len(offsets)) if cursor else range(rank, len(offsets), readers):
        offset, size = offsets[at], sizes[at]
        if ahead and at + ahead < len(offsets):
            hint(at + ahead)
        if cursor and at % readers != rank:
            assert view is not None
            touched ^= view[offset]
            passed += 1
            if passed & 15:
                continue
        elif view is not None:
            buffer[:size] = view[offset : offset + size]
            total += size
            records += 1
        elif direct:
            start = offset // PAGE * PAGE
            end = -(-(offset + size) // PAGE) * PAGE
            os.preadv(descriptor, [buffer[: end - start]], start)
            total += size
            records += 1
        else:
            os.preadv(descriptor, [buffer[:size]], offset)
            total += size
            records += 1
        if clock() >= until:
            break
    return total, records, passed


def _queued() -> float:
    """Seconds that this process was ready and waited for a CPU; 0 where it is not told."""
    try:
        with open("/proc/self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except OSError:
        return 0.0


def _storage() -> int:
    """Bytes that came from storage for this process; 0 where it is not told."""
    try:
        with open("/proc/self/io") as file:
            fields = dict(line.split(": ") for line in file.read().splitlines())
    except OSError:
        return 0
    return int(fields["read_bytes"])


if __name__ == "__main__":
    main(sys.stdin.buffer)
