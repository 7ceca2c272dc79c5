"""Ranks watched from outside, against what they know of themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pretended_ranks
import pytest
from pretended_ranks import started

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.job import protocol
from dltune.system.proc import process
from dltune.system.proc.stat import Tree
from dltune.systems.ranks.horovod import schema
from dltune.systems.ranks.horovod.schema import WRITER
from dltune.systems.ranks.horovod.watch import document, hang
from dltune.systems.ranks.horovod.watch.watch import Watch

# seconds in which what a test waits for must have come
PATIENCE = 240.0


def known(watch: Watch, ranks: int = 1) -> bool:
    """So many ranks were seen, and of each what every thread is there for."""
    seen = watch.ranks.values()
    return len(seen) == ranks and all(
        rank.stack and all(rank.threads[key].identity for key in rank.running) for rank in seen
    )


def given_up(watch: Watch, tid: int) -> bool:
    """A thread was never at rest when it was looked at, and all others are known."""
    for rank in watch.ranks.values():
        unknown = [key for key in rank.running if rank.threads[key].identity is None]
        if [key[0] for key in unknown] == [tid]:
            return rank.looks.get(unknown[0], 0) >= 5
    return False


def watched(pid: int, enough: Callable[[Watch], object]) -> schema.Horovod:
    with Watch(Tree(pid)) as watch:
        watch.run(PATIENCE, lambda: bool(enough(watch)), lambda: None)
        report = document.assemble(watch, ("job",), None, False)
    assert struct_faults("", report) == []
    return report


def init(rank: pretended_ranks.Rank, threads: list[int], settings: dict[str, str]):
    """What the bootstrap says after hvd.init()."""
    return protocol.Horovod(
        pid=rank.pid,
        rank=1,
        size=2,
        local_rank=1,
        local_size=2,
        controller="mpi",
        version="0.28.1",
        mpi=None,
        threads=threads,
        bound=[0],
        settings=settings,
        overridden={},
    )


def test_the_background_thread_is_found_by_its_stack(library):
    with started(library, rank=1) as rank:
        report = watched(rank.pid, known)
    (seen,) = report.ranks
    assert (seen.rank, seen.size, seen.pid) == (1, 2, rank.pid)
    assert seen.background == rank.background
    assert seen.evidence == ("stack",)
    assert seen.horovod == "0.28.1"
    assert seen.settings["HOROVOD_CYCLE_TIME"] == "2"
    assert "HOROVOD_RANK" not in seen.settings
    roles = {thread.tid: thread.role for thread in seen.threads}
    assert roles[rank.background] == "background"
    assert roles[rank.helper] == "helper"
    assert roles[rank.pid] == "python"
    assert any("1 of 2 ranks are not" in finding.title for finding in report.findings)


def test_cpu_time_is_that_of_the_threads_own_clock(library, tmp_path):
    # CPUCLOCK_SCHED of one thread, as pthread_getcpuclockid gives it: only its own process may ask
    go, worked, end = (tmp_path / name for name in ("go", "worked", "end"))
    body = f"""
clock = ~lib.background_thread() << 3 | 6
def tell():
    print(time.clock_gettime(clock), flush=True)
tell()
until({str(go)!r})
tell()
lib.work(1000)
tell()
open({str(worked)!r}, "w").close()
until({str(end)!r})
tell()
time.sleep(600)
"""
    with started(library, body, cycle=20) as rank:
        clock = [float(rank.process.stdout.readline())]

        def over() -> bool:
            if known(watch):
                go.touch()
            return worked.exists()

        with Watch(Tree(rank.pid)) as watch:
            watch.run(PATIENCE, over, lambda: None)
            (seen,) = watch.ranks.values()
        end.touch()
        clock += [float(rank.process.stdout.readline()) for _ in range(3)]
    thread = next(t for (tid, _), t in seen.threads.items() if tid == rank.background)
    least, most = clock[2] - clock[1], clock[3] - clock[0]
    assert least >= 1.0
    # what others are told of a thread that runs is as old as the last tick
    assert least - 0.01 <= thread.used.cpu <= most


def test_threads_that_come_and_go_keep_what_they_used(library, tmp_path):
    go, end, gone = (tmp_path / name for name in ("go", "end", "gone"))
    body = f"""
ends = threading.Event()
def work():
    while time.thread_time() < 0.53:
        sum(range(1000))
    ends.wait()
until({str(go)!r})
before = time.process_time()
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
until({str(end)!r})
ends.set()
for thread in threads:
    thread.join()
    while os.path.exists(f"/proc/self/task/{{thread.native_id}}"):
        time.sleep(0.01)  # the kernel's ends after Python's
print(time.process_time() - before, flush=True)
open({str(gone)!r}, "w").close()
time.sleep(600)
"""
    with started(library, body) as rank, Watch(Tree(rank.pid)) as watch:

        def over() -> bool:
            if known(watch):
                go.touch()
            threads = [thread for rank in watch.ranks.values() for thread in rank.threads.values()]
            # the kernel rounds down a thread's user and kernel time each, to hundredths
            if sum(thread.born and thread.last.cpu >= 0.51 for thread in threads) == 2:
                end.touch()
            return gone.exists()

        watch.run(PATIENCE, over, lambda: None)
        assert gone.exists(), watch.ranks
        spent = float(rank.process.stdout.readline())  # by all threads of the process meanwhile
        (seen,) = document.assemble(watch, ("job",), None, False).ranks
        alive = {int(task.name) for task in Path(f"/proc/{rank.pid}/task").iterdir()}
    born = [thread for thread in seen.threads if thread.born]
    assert len(born) == 2
    assert not alive & {thread.tid for thread in born}
    used = sum(thread.cpu for thread in born) * seen.seconds
    assert 1.02 - 1e-3 <= used <= spent + 1e-3
    assert sum(thread.cpu for thread in seen.threads) <= seen.cpu * 1.05 + 0.01


def test_a_child_with_a_ranks_library_is_no_rank(library):
    body = """
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(0)
print("forked", flush=True)
time.sleep(600)
"""
    with started(library, body) as rank:
        assert rank.process.stdout.readline() == "forked\n"
        report = watched(
            rank.pid,
            lambda watch: len(watch.members) == 2 and any(r.stack for r in watch.ranks.values()),
        )
    assert [seen.pid for seen in report.ranks] == [rank.pid]


def test_sleeps_are_seen_where_the_kernel_allows_it(library):

    def enough(watch: Watch) -> bool:
        sleeps = [rank.sleeps for rank in watch.ranks.values() if rank.sleeps]
        if not sleeps or sleeps[0].refused:
            return bool(sleeps)
        cycles = sleeps[0].cycles()
        return bool(cycles and cycles.oversleep and cycles.oversleep.samples >= 20)

    with started(library, cycle=2) as rank:
        report = watched(rank.pid, enough)
    (seen,) = report.ranks
    if seen.cycles is None:
        assert any(text.startswith("cycles and oversleep are unknown: ") for text in seen.unseen)
        return
    assert seen.cycles.setting == pytest.approx(2e-3)
    assert seen.cycles.period.median >= 2e-3
    assert seen.cycles.oversleep is not None
    assert seen.cycles.oversleep.samples >= 20
    # a sleep of less than 2 ms begins 2 ms before the next cycle at the latest
    assert seen.cycles.oversleep.median < seen.cycles.period.median


def test_a_thread_that_never_rests_is_said_to_be_unseen(library):
    """Work of 3 ms in cycles of 2 ms never sleeps."""
    with started(library, cycle=2, spin=3) as rank:
        (seen,) = watched(rank.pid, lambda watch: given_up(watch, rank.background)).ranks
    assert seen.background is None
    assert seen.cycles is None
    (told,) = seen.unseen
    assert told.startswith("the background thread was not identified: ")
    assert told.endswith(f"these threads never slept: {rank.background}")


def test_a_process_without_horovod():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        with Watch(Tree(other.pid)) as watch:
            watch.run(1.0, lambda: False, lambda: None)
            with pytest.raises(UsageError, match=f"pid {other.pid} has loaded neither Horovod"):
                document.assemble(watch, (), None, False)
        other.kill()


def test_a_library_without_symbols_is_said_to_be(library, tmp_path):
    copy = tmp_path / "horovod" / "tensorflow" / "mpi_lib.so"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(library.read_bytes())
    subprocess.run(["strip", str(copy)], check=True)
    with started(copy) as rank:
        (seen,) = watched(
            rank.pid, lambda watch: any(rank.looks for rank in watch.ranks.values())
        ).ranks
    assert seen.background is None
    assert any("Horovod's library has no symbols" in text for text in seen.unseen)


def test_the_rank_that_died_is_told_from_those_that_follow(library, tmp_path):
    go, died = tmp_path / "go", tmp_path / "died"
    dies = f"until({str(go)!r})\nos.kill(os.getpid(), signal.SIGSEGV)"
    first = pretended_ranks.command(library, dies)
    second = pretended_ranks.command(library, f"until({str(died)!r})\nsys.exit(1)")
    launcher = pretended_ranks.launcher(second, first)
    with subprocess.Popen(launcher) as job, Watch(Tree(job.pid)) as watch:

        def over() -> bool:
            if known(watch, ranks=2):
                go.touch()
            if any(rank.ended_at for rank in watch.ranks.values()):
                died.touch()
            return job.poll() is not None

        watch.run(PATIENCE, over, lambda: None)
        report = document.assemble(watch, ("job",), None, False)
    assert [rank.ended for rank in report.ranks] == [1, -signal.SIGSEGV]
    told = report.findings[0]
    assert told.title == "rank 1 failed first, and the others followed"
    assert "was ended by SIGSEGV" in told.evidence
    assert "rank 0 ended with exit code 1" in told.evidence


@pytest.mark.parametrize("how", ["stopped", "asleep"])
def test_a_rank_that_hangs_is_told_from_those_that_wait(library, monkeypatch, how):
    monkeypatch.setattr(hang, "HUNG_SECONDS", 4.0)
    # py-spy gets only the CPU time that nobody else wants
    monkeypatch.setattr(process, "PATIENCE_SECONDS", PATIENCE)

    def enough(watch: Watch) -> bool:
        if how == "stopped":
            return bool(watch.stuck)
        ranks = watch.ranks.values()
        return len(ranks) == 2 and all(rank.progress.known for rank in ranks)

    with started(library, rank=0) as one, started(library, rank=1) as other:
        if how == "stopped":
            other.process.send_signal(signal.SIGSTOP)
        report = watched(os.getpid(), enough)  # both are children of this process
        ranks = {rank.pid: rank for rank in report.ranks}
    if how == "stopped":
        assert ranks[other.pid].stuck == "its process is stopped by a signal"
        assert ranks[one.pid].stuck is None
        assert report.findings[0].title == "rank 1 hangs, and the others wait for it"
    else:  # neither is within TensorFlow: no one is to blame
        assert all(rank.stuck is None for rank in ranks.values())


def test_ranks_of_different_versions(library, tmp_path):
    newer = pretended_ranks.build(tmp_path, "0.29.0")
    with started(library, rank=0), started(newer, rank=1):
        report = watched(os.getpid(), lambda watch: len(watch.ranks) == 2)
    (told,) = [f for f in report.findings if "versions" in f.title]
    assert told.title == "ranks run different versions of Horovod"
    assert told.evidence == "0.28.1: rank 0; 0.29.0: rank 1"


@pytest.mark.parametrize("built", [False, True])
def test_tensorflow_without_horovod_for_it(library, tmp_path, built):
    """What stands beside a TensorFlow that a process has loaded."""
    packages = tmp_path / "site-packages"
    tensorflow = packages / "tensorflow" / "libtensorflow_framework.so.2"
    tensorflow.parent.mkdir(parents=True)
    tensorflow.write_bytes(library.read_bytes())
    if built:
        (packages / "horovod" / "torch").mkdir(parents=True)
    code = "import ctypes, sys, time; ctypes.CDLL(sys.argv[1]); time.sleep(300)"
    with subprocess.Popen([sys.executable, "-c", code, str(tensorflow)]) as other:
        with Watch(Tree(other.pid)) as watch:
            watch.run(PATIENCE, lambda: bool(watch.amiss), lambda: None)
            with pytest.raises(UsageError) as refused:
                document.assemble(watch, (), None, False)
        other.kill()
    expected = (
        f"Horovod in {packages} is built without TensorFlow"
        if built
        else f"{packages} has TensorFlow but no Horovod"
    )
    assert expected in str(refused.value)
    assert "HOROVOD_WITH_TENSORFLOW=1" in (refused.value.remedy or "")


@pytest.mark.parametrize("agree", [True, False])
def test_what_the_job_says_of_its_threads(library, agree):
    with started(library) as rank, Watch(Tree(rank.pid)) as watch:
        threads = [rank.background, rank.helper]
        said = threads if agree else threads[::-1]
        watch.hear(init(rank, said, {"HOROVOD_CYCLE_TIME": "3.5"}))
        watch.run(PATIENCE, lambda: known(watch), lambda: None)
        (seen,) = document.assemble(watch, ("job",), None, False).ranks
    assert seen.evidence == ("init", "stack")
    assert (seen.rank, seen.controller) == (1, "mpi")
    assert seen.settings == {"HOROVOD_CYCLE_TIME": "3.5"}
    assert seen.background == rank.background
    disagree = [text for text in seen.unseen if "by its stack it is" in text]
    assert bool(disagree) is not agree


@pytest.mark.parametrize("told", [True, False])
def test_the_timelines_writer_never_rests(library, told):
    """Of those that hvd.init() adds no other does; without the job's word it is not known."""
    body = """
os.write(1, b"%d\\n" % lib.write_timeline())
time.sleep(600)
"""
    with started(library, body) as rank, Watch(Tree(rank.pid)) as watch:
        writer = int(rank.process.stdout.readline())
        if told:
            threads = [rank.background, rank.helper, writer]
            watch.hear(init(rank, threads, {"HOROVOD_TIMELINE": "timeline.json"}))
        watch.run(PATIENCE, lambda: given_up(watch, writer), lambda: None)
        (seen,) = document.assemble(watch, ("job",), None, False).ranks
    thread = next(t for t in seen.threads if t.tid == writer)
    unseen = [text for text in seen.unseen if text.endswith(f"these threads never slept: {writer}")]
    if told:
        assert (thread.role, thread.name) == ("helper", WRITER)
        assert not unseen
    else:
        assert thread.role == "other"
        assert unseen
