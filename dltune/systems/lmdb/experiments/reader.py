"""One reading process: `python -m dltune.systems.lmdb.experiments.reader`.

Takes pickles from stdin, each of the file's path, the reader's rank and a `Task`. Answers with
pickles too: `READY`, then, once it receives `GO` and has read, the `Outcome`; or the system's
message, when the file cannot be read this way. Ends with its stdin.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import resource
import sys
import time
from typing import BinaryIO

from dltune.system.kernel_files import read
from dltune.system.proc import process
from dltune.systems.lmdb.experiments.runs import READY, Outcome, Task

PAGE = mmap.PAGESIZE


def main(tasks: BinaryIO) -> None:
    with contextlib.suppress(EOFError):
        while True:
            path, rank, task = pickle.load(tasks)
            try:
                answer: Outcome | str = _perform(path, rank, task, tasks)
            except OSError as error:
                answer = os.strerror(error.errno or 0)
            _answer(answer)


def _answer(answer: object) -> None:
    pickle.dump(answer, sys.stdout.buffer)
    sys.stdout.flush()


def _perform(path: str, rank: int, task: Task, tasks: BinaryIO) -> Outcome:
    flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if task.method == "direct" else 0)
    room = max(task.sizes, default=0) // PAGE * PAGE + 2 * PAGE
    with contextlib.ExitStack() as stack:
        descriptor = os.open(path, flags)
        stack.callback(os.close, descriptor)
        # a mapping is aligned to pages, as O_DIRECT wants it; touched, so that it is there
        buffer = stack.enter_context(memoryview(stack.enter_context(mmap.mmap(-1, room))))
        for at in range(0, room, PAGE):
            buffer[at] = 1
        view = None
        if task.method == "mmap":
            size = os.fstat(descriptor).st_size
            mapping = stack.enter_context(mmap.mmap(descriptor, size, prot=mmap.PROT_READ))
            view = stack.enter_context(memoryview(mapping))
            if task.advised:
                mapping.madvise(mmap.MADV_RANDOM)
        elif task.advised:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        _answer(READY)
        pickle.load(tasks)  # GO
        before, queued, storage = resource.getrusage(resource.RUSAGE_SELF), _queued(), _storage()
        began = time.monotonic()
        total, records, passed = _read(task, rank, descriptor, view, buffer, began + task.seconds)
        ended = time.monotonic()
        after = resource.getrusage(resource.RUSAGE_SELF)
        return Outcome(
            began=began,
            ended=ended,
            bytes=total,
            records=records,
            passed=passed,
            cpu=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            queued=_queued() - queued,
            voluntary=after.ru_nvcsw - before.ru_nvcsw,
            involuntary=after.ru_nivcsw - before.ru_nivcsw,
            major=after.ru_majflt - before.ru_majflt,
            storage=_storage() - storage,
        )


def _read(
    task: Task,
    rank: int,
    descriptor: int,
    view: memoryview | None,
    buffer: memoryview,
    until: float,
) -> tuple[int, int, int]:
    """Bytes and records read, records passed. `ahead` pieces are hinted before they are read."""
    offsets, sizes, readers, cursor = task.offsets, task.sizes, task.readers, task.walk == "cursor"
    ahead, step, direct = task.ahead, task.hint_step, task.method == "direct"
    total = records = passed = touched = 0
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
        else:
            if view is not None:
                buffer[:size] = view[offset : offset + size]
            elif direct:
                start = offset // PAGE * PAGE
                end = -(-(offset + size) // PAGE) * PAGE
                os.preadv(descriptor, [buffer[: end - start]], start)
            else:
                os.preadv(descriptor, [buffer[:size]], offset)
            total += size
            records += 1
        if clock() >= until:
            break
    return total, records, passed


def _queued() -> float:
    """Return the seconds that this process was ready and waited for a CPU; 0 where the kernel has
    no count."""
    told = read("/proc/self/schedstat")
    return int(told.split()[1]) / 1e9 if told else 0.0


def _storage() -> int:
    """Return the bytes that came from storage for this process; 0 where the kernel has no count."""
    told = process.reads(os.getpid())
    return told.storage if told else 0


if __name__ == "__main__":
    main(sys.stdin.buffer)
