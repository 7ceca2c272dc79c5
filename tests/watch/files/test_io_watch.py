"""Real jobs, watched."""

from __future__ import annotations

import os
from collections.abc import Callable

import lmdb
import numpy as np
import pytest
from watched_jobs import cold

from dltune.base.documents import struct_faults
from dltune.schemas import io
from dltune.system.proc.stat import Tree
from dltune.watch.files.accesses import FaultWatch
from dltune.watch.files.io_document import assemble
from dltune.watch.files.io_watch import BURSTS, FILES, MEMBERS, RESIDENT, WAITS, Watch

# reads on until the test has seen enough: argv is the file, then what the body takes
READS = """
import mmap, os, random, sys, time
path = sys.argv[1]
def cold():
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
"""

PREADS = (
    READS
    + """
fd = os.open(path, os.O_RDONLY)
size = os.fstat(fd).st_size
print("ready", flush=True)
while True:
    cold()
    order = list(range(0, size - 65536, 65536))
    if sys.argv[2] == "shuffled":
        random.shuffle(order)
    for offset in order:
        os.pread(fd, 65536, offset)  # line 19
"""
)

LMDB = (
    READS
    + """
import lmdb
rank, readers, pause = int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
buffer = bytearray(1 << 20)
env = lmdb.open(os.path.dirname(path), readonly=True, lock=False)
print("ready", flush=True)
while True:
    with env.begin(buffers=True) as reading:
        for at, value in enumerate(reading.cursor().iternext(keys=False)):
            if at % readers == rank:
                buffer[: len(value)] = value
                time.sleep(pause)
    env.close()
    cold()
    env = lmdb.open(os.path.dirname(path), readonly=True, lock=False)
"""
)

NUMPY = (
    READS
    + """
import numpy
print("ready", flush=True)
while True:
    cold()
    array = numpy.load(path, mmap_mode="r")
    for at in range(0, len(array), 64):
        array[at : at + 64].sum()
        time.sleep(0.001)
    del array
"""
)


def watched(
    pid: int, enough: Callable[[Watch], bool], seconds: float = 240.0
) -> tuple[io.Io, Watch]:
    """The document of a watch that ends when it has seen `enough`."""
    with Watch(Tree(pid)) as watch:
        watch.run(seconds, lambda: enough(watch), lambda: None)
        document = assemble(watch, f"pid {pid}", None)
    assert struct_faults("", document) == []
    return document, watch


def file_of(document: io.Io, name: str) -> io.DataFile:
    assert document.watch is not None
    (found,) = [f for f in document.watch.files if f.path.endswith(name)]
    return found


def bursts(watch: Watch) -> int:
    """Of page faults on data files: accesses in the longest series."""
    found = [f for seen in watch.faults.threads.values() for f in seen.files.values()]
    return max((len(series) for f in found for series in f.series), default=0)


def events_or_skip() -> None:
    probe = FaultWatch()
    probe.begin([(os.getpid(), os.getpid())])
    probe.close()
    if probe.refused:
        pytest.skip(str(probe.refused))


@pytest.fixture
def database(tmp_path):
    """Records of 100 KB, 40 MB in all."""
    folder = tmp_path / "db"
    with lmdb.open(str(folder), map_size=1 << 28) as made, made.begin(write=True) as writing:
        for at in range(400):
            writing.put(b"%08d" % at, os.urandom(1 << 10) * 100)
    cold(folder / "data.mdb")
    return folder / "data.mdb"


@pytest.mark.parametrize("order", ["sequential", "shuffled"])
def test_a_job_that_reads_by_calls(started, plain_file, order):
    job = started(PREADS, plain_file, order)
    wanted = 40 if order == "shuffled" else 5  # an order is told by many of them

    def enough(watch: Watch) -> bool:
        uses = [use for seen in watch.processes.values() for use in seen.files.values()]
        return any(len(calls) >= wanted for use in uses for calls in use.calls.values())

    document, watch = watched(job.pid, enough, 30.0)
    file = file_of(document, "data.bin")
    assert (file.format, file.size, file.mapped) == ("other", 32 << 20, 0)
    assert file.processes == (job.pid,)
    if not file.requests:
        pytest.skip("storage too fast for a read to be seen waiting")
    assert {request.size for request in file.requests} == {65536}
    assert file.asked is not None
    if enough(watch) and order == "shuffled":
        assert (file.pattern.kind, file.pattern.source) == ("shuffled", "calls")


def test_one_sequential_reader_of_lmdb(started, database):
    events_or_skip()
    job = started(LMDB, database, 0, 1, 0.003)
    document, _ = watched(job.pid, lambda watch: bursts(watch) >= 40)
    file = file_of(document, "data.mdb")
    assert file.format == "lmdb"
    assert file.mapped >= file.size
    assert (file.pattern.kind, file.pattern.source) == ("sequential", "faults")
    assert file.minor
    assert file.advice == "normal"
    assert file.hot
    assert document.watch is not None
    assert document.watch.faults_by == "events"


EIGHT = """
import subprocess, sys
children = [
    subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2], str(rank), "8", "0.05"])
    for rank in range(8)
]
print("ready", flush=True)
for child in children:
    child.wait()
"""


def test_eight_strided_readers_of_lmdb(started, tmp_path):
    events_or_skip()
    folder = tmp_path / "db"
    with lmdb.open(str(folder), map_size=1 << 28) as made, made.begin(write=True) as writing:
        for at in range(160):
            writing.put(b"%08d" % at, os.urandom(1 << 10) * 300)

    def enough(watch: Watch) -> bool:
        reading = [pages for of in watch.faults.processes.values() for pages in of.values()]
        using = [seen for seen in watch.processes.values() if seen.files]
        both = sum(map(len, reading)) > len(set().union(*reading))  # some pages are shared
        return len(using) == 8 and len(reading) >= 4 and bursts(watch) >= 40 and both

    kinds = []
    # pages that the kernel takes back meanwhile fault again, in any order
    for _ in range(3):
        job = started(EIGHT, LMDB, folder / "data.mdb")
        document, watch = watched(job.pid, enough)
        for pid in watch.tree.refresh()[1:]:
            os.kill(pid, 9)
        file = file_of(document, "data.mdb")
        assert len(file.processes) == 8
        assert file.shared is not None
        assert file.shared > 1
        kinds.append(file.pattern.kind)
        # LMDB's cursor touches the others' records too: for the kernel each of them reads all
        if kinds[-1] in ("sequential", "strided"):
            return
    pytest.fail(f"told as {kinds}")


STRIDED = """
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(fd).st_size
print("ready", flush=True)
while True:
    mapping = mmap.mmap(fd, size, prot=mmap.PROT_READ)
    for start in range(int(sys.argv[2]), size - (1 << 18), 8 << 20):
        len(mapping[start : start + (1 << 18)])
        time.sleep(0.0003)  # a burst is a quarter of a second at most
    mapping.close()
"""


def test_records_at_even_distances(started, tmp_path):
    events_or_skip()
    path = tmp_path / "records.bin"
    with open(path, "wb") as file:
        file.truncate(4 << 30)  # a hole, which is read like any other file
    job = started(STRIDED, path, 1 << 20)
    document, _ = watched(job.pid, lambda watch: bursts(watch) >= 40)
    found = file_of(document, "records.bin").pattern
    assert (found.kind, found.source) == ("strided", "faults")
    assert found.stride == 8 << 20


def test_a_numpy_memmap(started, tmp_path):
    path = tmp_path / "features.npy"
    np.save(path, np.zeros((8192, 1024), dtype=np.float32))
    cold(path)
    job = started(NUMPY, path)
    with Watch(Tree(job.pid)) as watch:
        watch.run(240.0, lambda: any(s.mappings for s in watch.processes.values()), lambda: None)
        document = assemble(watch, "job", None)
    file = file_of(document, "features.npy")
    assert file.format == "npy"
    assert file.mapped >= path.stat().st_size


def test_a_job_that_ends_meanwhile(started, plain_file):
    job = started(PREADS, plain_file, "sequential")
    with Watch(Tree(job.pid)) as watch:

        def end_it_then_go_on() -> bool:
            if watch.looks >= 20 and job.poll() is None:
                job.kill()
                job.wait()
            return False

        watch.run(240.0, end_it_then_go_on, lambda: None)
        document = assemble(watch, "job", None)
    assert struct_faults("", document) == []
    assert document.watch is not None
    assert document.watch.seconds < 240
    assert all(process.ended for process in document.watch.processes)
    assert file_of(document, "data.bin").size == 32 << 20


CHURN = """
import threading, time
print("ready", flush=True)
while True:
    threads = [threading.Thread(target=time.sleep, args=(0.002,)) for _ in range(20)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def test_threads_that_come_and_go(started):
    job = started(CHURN)
    # never more than 21 at once
    document, watch = watched(job.pid, lambda watch: len(list(watch.threads())) > 40)
    assert document.watch is not None
    (process,) = document.watch.processes
    assert not process.ended
    (main,) = [thread for thread in process.threads if thread.tid == job.pid]
    assert main.voluntary > 0
    assert document.watch.files == ()
    assert watch.files.known == {}


def test_a_file_that_is_deleted_while_it_is_read(started, plain_file):
    job = started(PREADS.replace("cold()\n    order", "order"), plain_file, "sequential")
    plain_file.unlink()
    document, _ = watched(job.pid, lambda watch: watch.looks >= 30)
    assert file_of(document, "data.bin").size == 32 << 20


def test_without_page_fault_events_proc_still_counts(started, database, monkeypatch):
    from dltune.base.errors import UsageError
    from dltune.watch.files import accesses

    def refuse(*_: object, **__: object) -> None:
        raise UsageError("minor-faults cannot be counted: barred", remedy="as root: sysctl")

    monkeypatch.setattr(accesses, "Ring", refuse)
    job = started(LMDB.replace("    cold()\n", ""), database, 0, 1, 0.003)

    def enough(watch: Watch) -> bool:
        seen = watch.processes.values()
        return watch.looks >= 60 and any(s.last_stat.minor > s.first_stat.minor for s in seen)

    document, _ = watched(job.pid, enough)
    assert document.watch is not None
    assert document.watch.faults_by == "counters"
    assert any(s.startswith("offsets of page faults are unknown: ") for s in document.unseen)
    (process,) = document.watch.processes
    assert process.minor > 0
    file = file_of(document, "data.mdb")
    assert (file.major, file.minor, file.shared) == (None, None, None)
    assert file.resident


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_a_process_of_another_user(started, plain_file):
    job = started(PREADS, plain_file, "sequential")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # the watch runs as nobody, who may not look into root's process
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with Watch(Tree(job.pid)) as watch:

                def switched() -> bool:
                    return any(t.last.voluntary > t.first.voluntary for t in watch.threads())

                watch.run(120.0, switched, lambda: None)
                document = assemble(watch, "job", None)
            import msgspec

            os.write(writing, msgspec.json.encode(document))
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as told:
        data = told.read()
    os.waitpid(child, 0)
    import msgspec

    document = msgspec.json.decode(data, type=io.Io)
    assert struct_faults("", document) == []
    assert document.watch is not None
    (process,) = document.watch.processes
    assert (process.user, process.read, process.storage_bytes) == ("root", None, None)
    assert process.threads[0].voluntary + process.threads[0].involuntary > 0
    assert document.watch.files == ()
    assert any("processes of root are hidden from this user" in s for s in document.unseen)


CONTAINED = """
import ctypes, mmap, os, sys, time
library = ctypes.CDLL(None, use_errno=True)
if library.unshare(0x20000) != 0 or library.mount(b"none", b"/", None, 0x44000, None) != 0:
    print("denied", flush=True)  # CLONE_NEWNS; MS_REC and MS_PRIVATE
    sys.exit()
library.mount(b"store", sys.argv[1].encode(), b"tmpfs", 0, None)
path = os.path.join(sys.argv[1], "hidden.bin")
with open(path, "wb") as file:
    file.write(bytes(8 << 20))
mapping = mmap.mmap(os.open(path, os.O_RDONLY), 0, prot=mmap.PROT_READ)
print("ready", flush=True)
while True:
    len(mapping[:])
    time.sleep(0.01)
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_job_with_mounts_of_its_own(started, tmp_path):
    job = started(CONTAINED, tmp_path)
    document, _ = watched(job.pid, lambda watch: watch.looks >= 20)
    file = file_of(document, "hidden.bin")
    assert not (tmp_path / "hidden.bin").exists()
    assert (file.size, file.mapped) == (8 << 20, 8 << 20)
    (place,) = document.storage
    assert (place.kind, place.mount) == ("tmpfs", str(tmp_path))


def test_every_kind_of_look_keeps_its_pace(started):
    """What a pace costs is told in tests/watch/test_sampler.py."""
    job = started(CHURN)
    with Watch(Tree(job.pid)) as watch:
        watch.run(3.0, lambda: False, lambda: None)
        found = assemble(watch, "job", None).watch
    assert found is not None
    paces = (MEMBERS, WAITS, FILES, RESIDENT, BURSTS)
    # waits vary by a third, and the first ones are shorter; a burst is two looks
    most = sum(found.seconds / (0.8 * least) + 8 for least, _ in (*paces, BURSTS))
    assert len(paces) <= found.cost.looks <= most


def test_a_watch_that_is_asked_to_end(started, plain_file):
    job = started(PREADS, plain_file, "sequential")
    with Watch(Tree(job.pid)) as watch:
        watch.run(None, lambda: watch.looks >= 5, lambda: None)
    assert watch.looks < 5 + 5  # a look of each kind at most
    assert job.poll() is None
