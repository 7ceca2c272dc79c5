"""`dltune run` on real jobs of two Horovod ranks, under a plan's section on Horovod."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from allreduce_plans import written
from two_ranks import (
    BLOCKS,
    ONE_THREAD,
    PYTHON,
    STEPS,
    TRAIN,
    Controller,
    Recorded,
    Running,
    Trained,
    dltune,
    environment,
    job,
    missing,
    trained,
)

from dltune.schemas.machine import Machine
from dltune.schemas.plan import Prediction, Threads, Uniform
from dltune.system import topology
from dltune.systems.ranks.allreduce.section import (
    Bin,
    Knobs,
    Order,
    RankCores,
    Sleeps,
)
from dltune.systems.ranks.horovod import timeline

pytestmark = pytest.mark.tensorflow

ODD = Path(__file__).parents[3] / "jobs" / "horovod_odd.py"
RECORDER = ODD.with_name("allreduces.c")


def shapes(blocks: int) -> tuple[tuple[int, ...], ...]:
    """Of the gradients of train_horovod.py."""
    found: list[tuple[int, ...]] = []
    for block in range(blocks):
        found += [(3, 3, 32 if block else 3, 32), (32,), (32,), (32,)]
    return (*found, (32, 10), (10,))


def bins(shapes: Sequence[tuple[int, ...]], members: Sequence[Sequence[int]]) -> tuple[Bin, ...]:
    sizes = [4 * math.prod(shape) for shape in shapes]
    return tuple(Bin(tuple(mine), sum(sizes[i] for i in mine)) for mine in members)


def order(shapes: Sequence[tuple[int, ...]], bins: tuple[Bin, ...]) -> Order:
    return Order(tuple(shapes), ("float32",) * len(shapes), bins)


@pytest.fixture(scope="module")
def machine() -> Machine:
    found = topology.local()
    if len(found.cores) < 2:
        pytest.skip("two ranks need two cores")
    return found


def require(controller: Controller) -> None:
    if reason := missing(controller):
        pytest.skip(reason)


def batches(folder: Path) -> list[list[timeline.Batch]]:
    """Of each step, from Horovod's own record in a job's folder."""
    return timeline.steps(timeline.recording(folder / "timeline.json").batches)


def recording(folder: Path) -> dict[str, str]:
    return {"HOROVOD_TIMELINE": str(folder / "timeline.json")}


@pytest.fixture
def plain(plain_ranks: Callable[[Controller], Trained]) -> Trained:
    """Stock Horovod over gloo, on one thread."""
    return plain_ranks("gloo")


ON_ONE_THREAD = Threads(
    strategy="uniform 1x1",
    uniform=Uniform(1, 1),
    corun=False,
    hyperthreads=False,
    small=0.0,
    ops=(),
    predictions=(Prediction("uniform 1x1", 0.05, 1.0, 1.0),),
)
# one gradient in two pieces, with others between
BEFORE, BETWEEN, AFTER = bins(shapes(BLOCKS), ((13, 12, 11, 10, 9), (7, 6, 5), (4, 3, 2, 1, 0)))
BINS = (BEFORE, Bin((8,), 4 * 5000, (0, 5000)), BETWEEN, Bin((8,), 4 * 4216, (5000, 9216)), AFTER)


@dataclass
class Planned(Trained):
    """`allowed`: the CPUs of each rank's first thread and of those that hvd.init() added."""

    allowed: tuple[list[set[int]], list[set[int]]]
    outcome: dict


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, machine: Machine) -> Planned:
    """The same job with the background threads on the other rank's core, and in five bins, which
    make the step's graph another than the one that its section on threads was planned for."""
    require("gloo")
    folder = tmp_path_factory.mktemp("planned")
    path = written(
        folder / "plan.json",
        machine,
        "gloo",
        ON_ONE_THREAD,
        cores=(RankCores((1,), (1,), (0,), (1,)), RankCores((0,), (0,), (1,), (0,))),
        threads=Uniform(1, 1),
        orders=(order(shapes(BLOCKS), BINS),),
        knobs=Knobs(0.002, 1 << 26, 1024),
    )
    under = dltune("run", "--plan", path, "--json", folder / "outcome.json")
    with job(folder, "gloo", ONE_THREAD, under=under, env=recording(folder)) as running:
        began(running, 0)  # the first step takes the longest: they are there for a while
        allowed = (cpus(running.rank(0)), cpus(running.rank(1)))
        ended = trained(running)
    outcome = json.loads((folder / "outcome.json").read_text())
    return Planned(ended.said, folder, ended.ranks, allowed, outcome)


def began(running: Running, steps: int = 1) -> None:
    """Waits until both ranks have trained for so many steps, or are about to."""
    until = time.monotonic() + 400
    while not all(_steps(running, rank) >= steps for rank in (0, 1)):
        assert running.process.poll() is None, running.stdout + running.stderr
        assert time.monotonic() < until, running.stdout + running.stderr
        time.sleep(0.1)


def _steps(running: Running, rank: int) -> int:
    path = running.folder / "record" / f"rank{rank}"
    return path.read_text().count("\n") - 1 if path.exists() else -1


def cpus(rank: Recorded) -> list[set[int]]:
    return [os.sched_getaffinity(thread) for thread in (rank.pid, *rank.threads)]


def test_each_step_has_the_bins_of_the_plan_in_its_order(planned: Planned) -> None:
    steps = [[batch.tensors for batch in step] for step in batches(planned.folder)]
    first, *_, last = steps
    assert [len(tensors) for tensors in first] == [len(bin_.tensors) for bin_ in BINS]
    # what the timeline's thread has not written when Horovod shuts down is lost
    assert STEPS / 2 < len(steps) <= STEPS
    assert steps[:-1] == [first] * (len(steps) - 1)
    assert last == first[: len(last)]


def test_plain_horovod_has_other_batches(plain: Trained) -> None:
    """Else the plan would change nothing."""
    assert any(
        {len(b.tensors) for b in step} != {len(bin_.tensors) for bin_ in BINS}
        for step in batches(plain.folder)
    )


def test_losses_are_those_of_plain_horovod(planned: Planned, plain: Trained) -> None:
    """To the bit: each sum is of two numbers."""
    for mine, theirs in zip(planned.ranks, plain.ranks, strict=True):
        assert mine.losses == theirs.losses
        assert mine.parameters == theirs.parameters is not None


def test_both_ranks_end_with_the_same_parameters(planned: Planned) -> None:
    first, second = planned.ranks
    assert first.parameters == second.parameters is not None


def test_the_background_thread_and_the_ops_have_the_cores_of_the_plan(
    planned: Planned, machine: Machine
) -> None:
    own = [set(core.cpus) for core in machine.cores[:2]]
    for rank, other in ((0, 1), (1, 0)):
        main, *added = planned.allowed[rank]
        assert main == own[rank]
        assert added
        assert all(allowed == own[other] for allowed in added)


def test_what_was_enforced_is_told_for_each_rank(planned: Planned) -> None:
    for rank in (0, 1):
        assert f"rank {rank}: 14 gradients are reduced in 5 bins" in planned.said
        assert f"rank {rank}: HOROVOD_CYCLE_TIME=2" in planned.said
        assert f"rank {rank}: intra-op 1, inter-op 1" in planned.said
        assert re.search(rf"rank {rank}: \d+ threads of tf\.data on CPU", planned.said)
        said = f"rank {rank}: the plan is in force from now on, in the step's graph with its bins"
        assert said in planned.said
        assert re.search(rf"rank {rank}: \d+ steps, median", planned.said)
    assert [rank["rank"] for rank in planned.outcome["sections"]["allreduce"]] == [0, 1]
    assert {process["rank"] for process in planned.outcome["sections"]["threads"]} == {0, 1}


def test_all_parts_at_once_over_mpi(tmp_path: Path, machine: Machine, plain: Trained) -> None:
    require("mpi")
    path = written(
        tmp_path / "plan.json",
        machine,
        "mpi",
        cores=(RankCores((0,), (0,), (0,), (0,)), RankCores((1,), (1,), (1,), (1,))),
        threads=Uniform(1, 1),
        orders=(order(shapes(BLOCKS), BINS),),
        sleeps=Sleeps(30e-6, 50),
        yield_when_idle=True,
    )
    under = dltune("run", "--plan", path)
    with job(tmp_path, "mpi", ONE_THREAD, under=under) as running:
        ended = trained(running)
    for mine, theirs in zip(ended.ranks, plain.ranks, strict=True):
        assert mine.losses == theirs.losses
    assert ended.ranks[0].parameters == ended.ranks[1].parameters
    for rank in (0, 1):
        said = [line for line in ended.said.splitlines() if f"rank {rank}: " in line]
        assert any("non-blocking: sleep 30 us between tests of MPI; " in line for line in said)
        agree = "global-sleep: ranks agree on the shortest sleep every 50 cycles; "
        assert any(agree in line for line in said)
        assert any("OMPI_MCA_mpi_yield_when_idle=1" in line for line in said)
        assert not any("not enforced" in line for line in said), said


SETS = """
import horovod.tensorflow as hvd
import tensorflow as tf
hvd.init(process_sets=[hvd.ProcessSet([1])])
for _ in range(20):
    hvd.allreduce(tf.ones([8]), name="t")
"""


def test_ranks_of_a_script_with_process_sets_do_not_rest(tmp_path: Path, machine: Machine) -> None:
    require("mpi")
    sleeps = Sleeps(30e-6, None, 50e-3)
    path = written(tmp_path / "plan.json", machine, "mpi", sleeps=sleeps)
    script = tmp_path / "sets.py"
    script.write_text(SETS)
    command = ["mpirun", "-np", "2", "--oversubscribe", PYTHON, script]
    ended = subprocess.run(
        [*dltune("run", "--plan", path), *command],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    for rank in (0, 1):
        assert f"rank {rank}: non-blocking: sleep 30 us between tests of MPI; " in ended.stderr
        why = "the job can have process sets, whose members would wait for it"
        said = (
            f"rank {rank}: not enforced: rest: sleep up to 50 ms while there is nothing to send: "
        )
        assert said + why in ended.stderr


def test_every_rank_transfers_the_bins_in_the_order_of_the_plan(
    tmp_path: Path, machine: Machine
) -> None:
    """By each rank's own calls of MPI: Horovod's timeline is that of rank 0 alone."""
    require("mpi")
    path = written(
        tmp_path / "plan.json",
        machine,
        "mpi",
        threads=Uniform(1, 2),
        orders=(order(shapes(BLOCKS), BINS),),
    )
    recorder = tmp_path / "allreduces.so"
    environ = environment()
    mpicc = shutil.which("mpicc", path=environ["PATH"])
    assert mpicc
    subprocess.run([mpicc, "-shared", "-fPIC", "-o", recorder, RECORDER], check=True, env=environ)
    env = {"LD_PRELOAD": str(recorder), "ALLREDUCES": str(tmp_path)}
    under = dltune("run", "--plan", path)
    with job(tmp_path, "mpi", ONE_THREAD, under=under, env=env) as running:
        trained(running)
    first, second = ((tmp_path / f"rank{rank}").read_text().split() for rank in (0, 1))
    assert first == second
    floats = [bin_.bytes // 4 for bin_ in BINS]
    steps = [list(map(int, first[at : at + len(BINS)])) for at in range(0, len(first), len(BINS))]
    assert steps == [floats] * STEPS


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory, machine: Machine) -> Running:
    """Gradients late on one rank, from a conditional branch, sparse, missing; a rank 2 s behind;
    the script's own groups; a call that the plan does not know. At the end rank 1 fails."""
    require("gloo")
    folder = tmp_path_factory.mktemp("odd")
    dense = [(8, 8), (8,), (8, 4)]
    path = written(
        folder / "plan.json",
        machine,
        "gloo",
        orders=(order(dense, bins(dense, [[2, 1], [0]])),),
    )
    env = {**recording(folder), "DIES": "1"}
    under = dltune("run", "--plan", path)
    with job(folder, "gloo", (ODD, folder / "odd"), under=under, env=env) as running:
        running.wait()
    return running


def test_gradients_out_of_the_ordinary(odd: Running) -> None:
    """It comes to its end, and ranks agree."""
    first, second = ((odd.folder / "odd" / f"rank{rank}").read_text() for rank in (0, 1))
    assert first.splitlines()[-1] == second.splitlines()[-1]
    assert first.splitlines()[-1].startswith("parameters")
    assert "rank 0: 3 gradients are reduced in 2 bins" in odd.stderr
    assert "not enforced: bins of a call with 2 gradients: the script sets groups" in odd.stderr
    assert "not enforced: bins of a call with 1 gradients: it reduces 1 dense" in odd.stderr
    found = timeline.recording(odd.folder / "timeline.json").batches
    twos = [b for b in found if len(b.tensors) == 2 and "cond/" in b.tensors[0]]
    assert len({b.tensors for b in twos}) <= 2  # the plan's bin of two, and the script's own group


def test_a_rank_that_fails_is_told_apart(odd: Running) -> None:
    assert odd.process.returncode == 1
    last = odd.stderr.splitlines()[-1]
    assert "the job ended with exit code 1: rank 1 (pid " in last
    assert "failed first: ValueError: this rank has had enough; rank 0 (pid " in last


def test_mpi_unbinds_its_ranks_and_tells_of_one_that_is_killed(
    tmp_path: Path, machine: Machine
) -> None:
    """mpirun binds each of two ranks to a core, so that a background thread elsewhere proves it."""
    require("mpi")
    path = written(
        tmp_path / "plan.json",
        machine,
        "mpi",
        cores=(RankCores((1,), (1,), (0,), (1,)), RankCores((0,), (0,), (1,), (0,))),
    )
    under = dltune("run", "--plan", path)
    script = (TRAIN, "--steps", 100000, "--blocks", 1, "--intra", 1, "--inter", 1)
    with job(tmp_path, "mpi", script, under=under) as running:
        began(running)
        ranks = (running.rank(0), running.rank(1))
        allowed = [cpus(rank) for rank in ranks]
        os.kill(ranks[1].pid, 9)
        code = running.wait()
    for mine, other in ((0, 1), (1, 0)):
        assert allowed[mine][0] == set(machine.cores[mine].cpus)
        assert allowed[mine][1] == set(machine.cores[other].cpus)
    assert code == 137
    assert "the launcher had bound the rank to CPU" in running.stderr
    last = running.stderr.splitlines()[-1]
    assert f"rank 1 (pid {ranks[1].pid}) failed first: it was stopped by SIGKILL" in last
    assert f"rank 0 (pid {ranks[0].pid}) followed" in last


def refused(path: Path, *launcher: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*dltune("run", "--plan", path), *launcher],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
        stdin=subprocess.DEVNULL,
    )


def test_a_plan_for_another_controller(tmp_path: Path, machine: Machine) -> None:
    require("mpi")
    path = written(tmp_path / "plan.json", machine, "gloo")
    done = refused(path, "mpirun", "-np", "2", "--oversubscribe", PYTHON, "-c", "input()")
    assert done.returncode == 2
    assert "the plan is for Horovod over gloo, the job runs it over mpi" in done.stderr


def test_a_plan_for_more_ranks(tmp_path: Path, machine: Machine) -> None:
    require("gloo")
    path = written(tmp_path / "plan.json", machine, "gloo", ranks=4, local=4)
    done = refused(path, "horovodrun", "-np", "2", "--gloo", PYTHON, "-c", "input()")
    assert done.returncode == 2
    assert "the plan is for 4 ranks, 4 of them on this node; the job runs 2 ranks" in done.stderr


def test_horovod_is_absent(tmp_path: Path, machine: Machine) -> None:
    path = written(tmp_path / "plan.json", machine, "gloo")
    code = "import sys; sys.path = [p for p in sys.path if 'site-' not in p]; import horovod"
    done = refused(path, PYTHON, "-c", code)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-2:]
    assert "Horovod could not be imported" in "".join(last)
    assert "No module named 'horovod'" in "".join(last)


def test_horovod_is_built_without_tensorflow(tmp_path: Path, machine: Machine) -> None:
    package = tmp_path / "stub" / "horovod" / "tensorflow"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("__version__ = '0.28.1'\n")
    (package / "__init__.py").write_text(
        "raise ImportError('Extension horovod.tensorflow has not been built')\n"
    )
    path = written(tmp_path / "plan.json", machine, "gloo")
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'stub')!r}); import horovod.tensorflow"
    done = refused(path, PYTHON, "-c", code)
    assert done.returncode == 1
    assert "Extension horovod.tensorflow has not been built" in done.stderr.splitlines()[-2]


def test_a_job_that_does_not_use_horovod(tmp_path: Path, machine: Machine) -> None:
    path = written(tmp_path / "plan.json", machine, "gloo")
    done = refused(path, PYTHON, "-c", "pass")
    assert done.returncode == 2
    assert "no process of the job called hvd.init()" in done.stderr
