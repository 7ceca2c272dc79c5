"""A job that reads from a store in user space: the kernel counts no bytes for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dltune.findings.data.exact_offsets import MIN_SPEEDUP
from dltune.schemas import io
from dltune.system.proc.tree import Tree
from dltune.systems.lmdb.experiments.session import experiment
from dltune.watch.files.document import assemble
from dltune.watch.files.watch import Watch

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="needs root and /dev/fuse"
    ),
]

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
    """16 MiB behind a pause of 5 ms for each request."""
    behind, folder = tmp_path / "behind", tmp_path / "store"
    behind.write_bytes(os.urandom(1 << 20) * 16)
    folder.mkdir()
    script = Path(__file__).with_name("delayed_store.py")
    arguments = [sys.executable, str(script), str(folder), str(behind), "0.005"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as serving:
        assert serving.stdout is not None
        if serving.stdout.readline() != b"ready\n":
            assert serving.stderr is not None
            pytest.skip(serving.stderr.read().decode().strip().splitlines()[-1])
        try:
            yield folder / "data.mdb"
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
            serving.kill()


@pytest.mark.parametrize("way", ["calls", "mapping"])
def test_a_job_on_it(started, store, way):
    job = started(READS, store, way)
    with Watch(Tree(job.pid)) as watch:

        def enough() -> bool:
            waits = sum(t.waits for s in watch.processes.values() for t in s.threads.values())
            if waits < 60 or time.monotonic() - watch.began < 4:
                return False
            # on a busy machine all looks may come when the job has read as much as at the last one
            seen = assemble(watch, "job", None).watch
            return seen is not None and any(file.storage_bytes for file in seen.files)

        watch.run(240.0, enough, lambda: None)
        document = assemble(watch, "job", None)
    # whoever holds the file when the store goes would wait for it
    job.kill()
    assert io.check(document) == []
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
    assert thread.waiting > 0.3 * thread.seconds
    assert thread.sleep_share is not None
    assert thread.sleep_share > 0.5
    assert "waits for storage" in document.findings[0].title
    if way == "calls":
        assert {request.size for request in file.requests} == {16384}
        assert (file.pattern.kind, file.pattern.source) == ("shuffled", "calls")
    elif document.watch.faults_by == "events":
        assert (file.pattern.kind, file.pattern.source) == ("shuffled", "faults")
        assert file.advice == "random"


def test_a_file_on_it_in_every_way(store):
    document = experiment(store, [1, 4], 20.0, say=lambda _: None, tell=lambda _: None)
    assert io.check(document) == []
    found = document.experiment
    assert found is not None
    assert any(
        sentence.startswith("the kernel does not count reads from fuse")
        for sentence in document.unseen
    )
    # a request that waits can be joined by others: hints pay, whatever the machine's load; against
    # read-ahead only where the store's own threads have a core to run on
    hinted = next(run for run in found.shuffled if run.ahead)
    mapped = {r.advised: r for r in found.shuffled if r.method == "mmap" and not r.ahead}
    assert hinted.throughput.median > 2 * mapped[True].throughput.median
    pays = hinted.throughput.median >= MIN_SPEEDUP * max(
        r.throughput.median for r in mapped.values()
    )
    assert pays == any("with hints for the next" in f.title for f in document.findings)
