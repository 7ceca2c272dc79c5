"""Counters, the parts of a step and Python's line in the profiles of real jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from profiled_jobs import Done

from dltune.cli.profile import choice
from dltune.job import protocol
from dltune.job.launch import Job
from dltune.job.protocol import TOTALS, Orders, grant_line, machine_lines
from dltune.profile.climb import Counting
from dltune.schemas import profile as documents
from dltune.schemas.profile import Profile, Total
from dltune.system import topology
from dltune.system.perf import access, events

pytestmark = pytest.mark.tensorflow

JOBS = Path(__file__).parents[1] / "jobs"
SOFTWARE = ("task-clock", "minor-faults", "major-faults", "context-switches", "cpu-migrations")


def dltune(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dltune", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=550,
    )


def counting(folder: Path, counters: str, script: str) -> Profile:
    path = folder / "profile.json"
    done = dltune(
        *("profile", "--steps", 4, "--counters", counters, "-o", path, "--"),
        *(sys.executable, JOBS / script),
    )
    assert done.returncode == 0, done.stderr
    return documents.load(path)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """Context switches can be counted only with the privilege for it."""
    if events.parse("minor-faults").exclude_kernel:
        pytest.skip("this process may not count what happens in the kernel")
    return counting(tmp_path_factory.mktemp("counted"), "software", "gradient_tape.py")


def test_every_op_is_counted_at_every_case(counted: Profile) -> None:
    controlled = [op for op in counted.ops if op.times]
    assert controlled
    for op in controlled:
        for time in op.times:
            # a worker that a busy machine keeps off the cores leaves a run of its op uncounted
            if time.threads == 1 or time.counts:
                assert tuple(count.event for count in time.counts) == SOFTWARE, op.key
            assert all(count.running == 1 for count in time.counts)
            assert all(0 < count.samples <= time.samples for count in time.counts)
    timed = [time for op in controlled for time in op.times]
    assert {time.threads for time in timed if time.counts} == {time.threads for time in timed}


def test_an_op_that_computes_all_the_time_has_that_time_on_the_clock(counted: Profile) -> None:
    """On one thread, a long op's task-clock is its wall time, unless the core is taken away."""
    alone = [op.times[0] for op in counted.ops if op.times and op.times[0].threads == 1]
    heavy = max(alone, key=lambda time: time.median)
    values = {count.event: count.value for count in heavy.counts}
    assert values["task-clock"] > 0
    if not values["context-switches"]:
        assert 0.5 * heavy.min < values["task-clock"]


def require_plausible(totals: dict[str, Total]) -> None:
    assert set(totals) == set(SOFTWARE) - {"cpu-migrations"}
    for total in totals.values():
        assert total.ops >= 0
        assert total.others >= 0
    assert totals["task-clock"].ops > totals["task-clock"].others


def test_a_profile_tells_where_events_happened(counted: Profile) -> None:
    assert counted.counters is not None
    totals = {total.event: total for total in counted.counters.totals}
    require_plausible(totals)
    assert totals["minor-faults"].ops > 0


def test_ops_gaps_and_other_threads_add_up_to_the_process(counted: Profile) -> None:
    """Of steps between two stands at the step barrier: the threads are read one after the other,
    and in a job that goes on the process has used more than they had by the time it is read."""
    chosen = choice("software")
    assert chosen is not None
    (group,) = chosen.groups
    counting = Counting(chosen)
    machine = topology.local()
    orders = Orders(
        1,
        targets=[counted.steps[0].signature],
        barrier=True,
        events=True,
        serial=True,
        counters=group,
        fallback=(1, topology.cores_for(machine, 1, "spread")),
    )
    command = [sys.executable, str(JOBS / "gradient_tape.py")]
    lines = [*machine_lines(machine), *orders.lines()]
    stands = 0
    with Job(
        command, greet=lambda _: lines, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as job:
        for event in filter(None, job.events(0.2)):
            if isinstance(event.message, protocol.Waiting):
                stands += 1
                assert event.process is not None
                # the first steps open the counters
                event.process.order([*([TOTALS] if stands > 1 else []), grant_line(20)])
            elif isinstance(event.message, protocol.Totals):
                counting.account(event.message)
                if counting.totals():
                    break
    totals = {total.event: total for total in counting.totals()}
    require_plausible(totals)
    for total in totals.values():
        parts = total.ops + total.gaps + total.others
        # what short-lived threads used is the process's alone; a handful is no share of anything
        assert parts == pytest.approx(total.process, rel=0.02, abs=20), total


def test_what_measuring_costs_is_told(counted: Profile) -> None:
    assert counted.counters is not None
    found = counted.counters.overhead
    assert found is not None
    assert found.pairs >= 3
    assert found.low <= found.median <= found.high


def test_the_parts_of_a_step_add_up(counted: Profile) -> None:
    (step,) = counted.steps
    assert {part.name for part in step.parts} == {
        "ops",
        "executor",
        "input",
        "communication",
        "python",
    }
    assert sum(part.seconds for part in step.parts) == pytest.approx(step.wall.median)


def test_auto_says_what_can_be_counted_here(profiled: Callable[[str], Done]) -> None:
    found = profiled("gradient_tape").profile.counters
    assert found is not None
    assert found.asked == "auto"
    assert found.why.strip().count("\n") == 0
    assert found.groups
    assert all(group for group in found.groups)


def test_a_slow_input_and_its_line_are_named_where_nothing_is_counted(
    tmp_path: Path,
) -> None:
    """The tape's loop draws its batches in Python: it is that line, or input, that takes time."""
    found = counting(tmp_path, "none", "slow_python.py")
    assert found.counters is None
    assert not any(time.counts for op in found.ops for time in op.times)
    (step,) = found.steps
    parts = {part.name: part.seconds for part in step.parts}
    assert parts["python"] > parts["executor"]
    assert step.lines
    assert "augment" in step.lines[0].where
    assert step.lines[0].where.split("/")[-1].startswith("slow_python.py:")


def test_a_job_that_can_open_no_counters_is_profiled_without_them(tmp_path: Path) -> None:
    found = counting(tmp_path, "software", "few_files.py")
    assert found.partial is None
    assert any("counting stopped" in note and "open files" in note for note in found.notes)
    timed = [time for op in found.ops for time in op.times]
    assert timed
    assert any(not time.counts for time in timed)


@pytest.mark.parametrize(
    ("asked", "told"),
    [("minor-fautls", "minor-faults"), ("sofware", "software"), ("LLC-lod-misses", "LLC-load")],
)
def test_unknown_events_are_refused_with_near_matches(
    tmp_path: Path, asked: str, told: str
) -> None:
    done = dltune("profile", "--counters", asked, "-o", tmp_path / "p.json", "--", "true")
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(access.available().paranoid in (-1, 0, 1), reason="anybody may count all here")
def test_an_ordinary_user_is_told_what_may_not_be_counted() -> None:
    """From paranoid level 2 on, an ordinary user cannot count what happens in the kernel."""
    code = (
        "from dltune.system.perf import presets\n"
        "from dltune.base.errors import UsageError\n"
        "import os; os.setgid(65534); os.setuid(65534)\n"
        "try: print('\\n'.join((presets.choose('software')[1], presets.choose('cs')[1])))\n"
        "except UsageError as error: print('refused:', error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "paranoid" in done.stdout
    assert "refused" in done.stdout
