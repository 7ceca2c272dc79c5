"""Real jobs of two ranks: is it the background thread, and is its CPU time what its clock says?

Horovod itself says which it is: HOROVOD_THREAD_AFFINITY has the background thread bind itself to a
CPU, which no other does.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import two_ranks

from dltune.system.proc.stat import Tree
from dltune.systems.ranks.horovod import schema
from dltune.systems.ranks.horovod.schema import WRITER
from dltune.systems.ranks.horovod.watch.watch import Watch

pytestmark = pytest.mark.tensorflow

JOB = Path(__file__).parents[4] / "jobs" / "horovod_clock.py"
# seconds for which both background threads are watched once they are found, and have run at least
WATCHED, USED = 8.0, 0.2
CPUS = sorted(os.sched_getaffinity(0))


@dataclass
class Told:
    """What a rank wrote down: threads with the CPUs they may use, and readings of the clock."""

    threads: dict[int, tuple[int, ...]]
    clock: list[tuple[float, float]]

    def cpu(self, at: float) -> tuple[float, float]:
        """By the thread's own clock: at its last reading before, and at its first after that."""
        after = next(i for i, (when, _) in enumerate(self.clock) if when >= at)
        return self.clock[after - 1][1], self.clock[after][1]


def told(file: Path) -> Told:
    first, *lines = file.read_text().splitlines()[:-1]
    threads = {
        int(tid): tuple(map(int, cpus.split("/")))
        for tid, cpus in (part.split(":") for part in first.split())
    }
    return Told(threads, [(float(at), float(cpu)) for at, cpu in map(str.split, lines)])


@dataclass
class Seen:
    """One job: the report that was made by starting it, and a watch of the same ranks. `counted`:
    when each background thread's first counts had been taken."""

    controller: two_ranks.Controller
    report: schema.Horovod
    watch: Watch
    counted: dict[int, float]
    ranks: list[Told]


def enough(watch: Watch, counted: dict[int, float]) -> bool:
    """Whether each background thread, which on a busy machine is found late, was watched long."""
    found = [
        (tid, thread)
        for rank in watch.ranks.values()
        for (tid, _), thread in rank.threads.items()
        if tid == rank.stack
    ]
    for tid, _ in found:
        counted.setdefault(tid, time.monotonic())
    return len(found) == 2 and all(
        thread.until - thread.since > WATCHED and thread.used.cpu > USED for _, thread in found
    )


@pytest.fixture(scope="module", params=["gloo", "mpi"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    controller: two_ranks.Controller = request.param
    if reason := two_ranks.missing(controller):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp(controller)
    launcher = two_ranks.LAUNCHERS[controller]
    if controller == "mpi":
        launcher = (*launcher, "--bind-to", "none")
    affinity = f"{CPUS[0]},{CPUS[-1]}"
    with two_ranks.job(
        folder,
        controller,
        (JOB, folder, 2 * two_ranks.WAIT),
        under=two_ranks.dltune(
            "horovod-report", "-o", folder / "report.json", "--timeline", folder / "timeline.json"
        ),
        launcher=launcher,
        env={"HOROVOD_THREAD_AFFINITY": affinity, "HOROVOD_CYCLE_TIME": "2"},
    ) as running:
        files = [folder / f"rank{rank}" for rank in (0, 1)]
        until = time.monotonic() + two_ranks.WAIT
        while not all(file.exists() and file.stat().st_size > 2000 for file in files):
            assert running.process.poll() is None, running.stderr
            assert time.monotonic() < until, running.stderr
            time.sleep(0.2)
        counted: dict[int, float] = {}
        with Watch(Tree(running.process.pid)) as watch:
            watch.run(two_ranks.WAIT, lambda: enough(watch, counted), lambda: None)
        (folder / "enough").touch()
        assert running.wait() == 0, running.stderr
        assert "\nfindings\n" in running.stdout
        return Seen(
            controller,
            schema.load(folder / "report.json"),
            watch,
            counted,
            [told(file) for file in files],
        )


def test_the_background_thread_is_found_in_both_ways(seen):
    assert [rank.rank for rank in seen.report.ranks] == [0, 1]
    for rank, known in zip(seen.report.ranks, seen.ranks, strict=True):
        assert rank.evidence == ("init", "stack")
        assert rank.background == next(iter(known.threads))
        assert rank.controller == seen.controller
        assert rank.horovod == "0.28.1"
        assert rank.ended == 0
        # the timeline's writer is its child, and inherits
        writers = {thread.tid for thread in rank.threads if thread.name == WRITER}
        assert len(writers) == (rank.rank == 0)
        if len(CPUS) > 1:
            bound = {tid for tid, cpus in known.threads.items() if len(cpus) == 1}
            assert bound - writers == {rank.background}


def test_its_cpu_time_is_that_of_its_own_clock(seen):
    for rank in seen.watch.ranks.values():
        known = seen.ranks[rank.identity.rank]
        assert rank.stack == next(iter(known.threads))
        thread = next(t for (tid, _), t in rank.threads.items() if tid == rank.stack)
        # the first counts are of some moment until `counted`, the last of one just before `until`
        (earliest, _), (_, since) = known.cpu(thread.since), known.cpu(seen.counted[rank.stack])
        (until, _), (_, latest) = known.cpu(thread.until), known.cpu(seen.watch.ended)
        assert until - since > 0.02
        used = thread.used.cpu
        assert 0.98 * (until - since) <= used <= 1.02 * (latest - earliest)


def test_roles_of_threads(seen):
    for rank, known in zip(seen.report.ranks, seen.ranks, strict=True):
        roles = {thread.tid: thread.role for thread in rank.threads}
        assert roles[rank.pid] == "python"
        assert {roles[tid] for tid in list(known.threads)[1:]} <= {"helper"}
        names = {thread.role: set() for thread in rank.threads}
        for thread in rank.threads:
            names[thread.role].add(thread.name)
        assert "tf_data_private_threadpool" in names["input"]
        assert any(name.startswith("tf_") for name in names["compute"])


def test_cycles_are_those_of_the_timeline(seen):
    first = seen.report.ranks[0]
    timeline = seen.report.timeline
    assert timeline is not None
    assert timeline.cycles is not None
    assert timeline.cycles.setting == pytest.approx(2e-3)
    assert any("recording the timeline uses" in f.title for f in seen.report.findings)
    if first.cycles is None:
        assert any(text.startswith("cycles and oversleep") for text in first.unseen)
        return
    assert first.cycles.setting == pytest.approx(2e-3)
    # cycles without a sleep, those with transfers among them, are longer and seen less often; where
    # dltune itself has no CPU for most of the time, the few that it sees are the long ones; and the
    # machine may be busier while it looks than at other times
    periods = timeline.cycles.period
    many = first.cycles.period.samples > 100
    most = max(2 * periods.median, periods.p95) if many else periods.max
    assert 0.9 * 2e-3 < first.cycles.period.median < most


def test_the_rank_that_raises_is_told_from_the_other(tmp_path):
    if reason := two_ranks.missing("gloo"):
        pytest.skip(reason)
    with two_ranks.job(
        tmp_path,
        "gloo",
        (JOB, tmp_path, 2 * two_ranks.WAIT, "die"),
        under=two_ranks.dltune("horovod-report", "--json"),
    ) as running:
        assert running.wait() != 0
        assert "; the report is still valid" in running.stderr
        report = msgspec.json.decode(running.stdout, type=schema.Horovod)
    first = report.findings[0]
    assert first.title.startswith("rank 1 failed first"), report.findings
    assert "ValueError" in first.evidence
    assert "out of luck" in first.evidence
