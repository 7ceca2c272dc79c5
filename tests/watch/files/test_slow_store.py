"""A job that reads from a store in user space: the kernel counts no bytes for it."""

from __future__ import annotations

import time

import pytest
import slow_stores

from dltune.base.documents import struct_faults
from dltune.system.proc.stat import Tree
from dltune.watch.files.io_document import assemble
from dltune.watch.files.io_watch import Watch

pytestmark = slow_stores.NEEDED

READS = """
import mmap, os, random, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(fd).st_size
print("ready", flush=True)
while True:
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    order = list(range(0, size - 16384, 16384))
    random.shuffle(order)
    if sys.argv[2] == "calls":
        for offset in order:
            os.pread(fd, 16384, offset)
    else:
        mapping = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
        mapping.madvise(mmap.MADV_RANDOM)
        for offset in order:
            len(mapping[offset : offset + 16384])
        mapping.close()
"""


@pytest.fixture
def store(tmp_path):
    with slow_stores.stored(tmp_path) as path:
        yield path


@pytest.mark.parametrize("way", ["calls", "mapping"])
def test_a_job_on_it(started, store, way):
    job = started(READS, store, way)
    with Watch(Tree(job.pid)) as watch:

        def enough() -> bool:
            waits = sum(t.waits for s in watch.processes.values() for t in s.threads.values())
            if waits < 60 or time.monotonic() - watch.began < 4:
                return False
            # an order is told by the jumps from record to record: a slow machine reads few a burst
            seen = [f for thread in watch.faults.threads.values() for f in thread.files.values()]
            series = [one for faults in seen for one in faults.series if one]
            records = sum(len({offset // 16384 for offset, _ in one}) for one in series)
            if way == "mapping" and not watch.faults.refused and records < 2 * len(series) + 20:
                return False
            # on a busy machine all looks may come when the job has read as much as at the last one
            seen = assemble(watch, "job", None).watch
            return seen is not None and any(file.storage_bytes for file in seen.files)

        watch.run(240.0, enough, lambda: None)
        document = assemble(watch, "job", None)
    # whoever holds the file when the store goes would wait for it
    job.kill()
    assert struct_faults("", document) == []
    assert document.watch is not None
    (file,), (process,), (place,) = document.watch.files, document.watch.processes, document.storage
    assert place.kind.startswith("fuse")
    assert not place.counted
    assert process.storage_bytes == 0
    assert file.storage_bytes
    assert file.asked
    assert any(
        sentence.startswith("the kernel does not count reads from fuse")
        for sentence in document.unseen
    )
    (thread,) = [thread for thread in process.threads if thread.tid == job.pid]
    # it does nothing but wait, except while it has a CPU, or while other work has it
    asleep = thread.seconds - thread.cpu - (thread.queued or 0.0)
    assert thread.waiting > 0.3 * asleep
    assert thread.sleep_share is not None
    share = asleep / (asleep + thread.kernel + (thread.queued or 0.0))
    assert thread.sleep_share > 0.5 * share
    assert "waits for storage" in document.findings[0].title
    if way == "calls":
        assert {request.size for request in file.requests} == {16384}
        assert (file.pattern.kind, file.pattern.source) == ("shuffled", "calls")
    elif document.watch.faults_by == "events":
        assert (file.pattern.kind, file.pattern.source) == ("shuffled", "faults")
        assert file.advice == "random"
