"""`dltune bench` on a real TensorFlow job, with a per-op plan and with uniform settings."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from profiled_jobs import Done
from running import remaining, with_argument

from dltune.schemas import bench as benches
from dltune.schemas.plan import SCHEMA, Candidate, OpPlan, Plan, Prediction, Threads, Uniform
from dltune.schemas.profile import Profile
from dltune.system import topology

pytestmark = pytest.mark.tensorflow

JOBS = Path(__file__).parents[1] / "jobs"
TAPE = [sys.executable, str(JOBS / "gradient_tape.py")]
GAN = [sys.executable, str(JOBS / "gan.py")]


def dltune(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dltune", "bench", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=550,
    )


def step_of(profile: Profile) -> tuple[tuple[str, ...], set[str]]:
    """The signatures of a profile's steps, and the keys of its convolutions."""
    signatures = tuple(step.signature for step in profile.steps)
    return signatures, {op.key for op in profile.ops if "Conv2D" in op.key}


def write_plan(path: Path, signatures: tuple[str, ...], keys: set[str] = frozenset()) -> Path:
    """A co-running plan of one thread for each key; a uniform plan without keys."""
    machine = topology.local()
    names = ("default", "recommended", "uniform 2x2", "per-type+co-run")
    made = Plan(
        schema=SCHEMA,
        created="2026",
        dltune="0",
        profile="00",
        machine=machine.fingerprint,
        machine_name=machine.name,
        cores=len(machine.cores),
        framework=None,
        signatures=signatures,
        sections={
            "threads": Threads(
                strategy="per-type+co-run" if keys else "uniform 2x2",
                uniform=Uniform(2, 2),
                corun=bool(keys),
                hyperthreads=False,
                small=0.0,
                ops=tuple(
                    OpPlan(key, 1, "spread", 1e-3, 1e-3, None, (Candidate(1, "spread", 1e-3),))
                    for key in sorted(keys)
                ),
                predictions=tuple(Prediction(name, 0.01, 1.0, 1.0) for name in names),
            )
        },
    )
    path.write_bytes(msgspec.json.encode(made))
    return path


@pytest.fixture
def tape_plan(profiled: Callable[[str], Done], tmp_path: Path) -> Path:
    signatures, keys = step_of(profiled("gradient_tape").profile)
    assert keys
    return write_plan(tmp_path / "plan.json", signatures, keys)


def test_settings_take_turns(tape_plan: Path, tmp_path: Path) -> None:
    output, raw = tmp_path / "bench.json", tmp_path / "raw.json"
    losses = tmp_path / "losses"
    done = dltune(
        *("--plan", tape_plan, "--against", "recommended,plan,3x1", "--rounds", 3),
        *("--seconds-per-turn", 0.1, "-o", output, "--pyperf", raw),
        *("--", *TAPE, "--losses", losses),
    )
    assert done.returncode == 0, done.stderr
    assert "trained" not in done.stdout
    made = benches.load(output)
    assert made.partial is None
    assert made.strategy == "per-type+co-run"
    by_name = {setting.name: setting for setting in made.settings}
    assert list(by_name) == ["recommended", "plan", "3x1", "1core"]
    assert (by_name["3x1"].intra, by_name["3x1"].inter) == (3, 1)
    assert by_name["1core"].cpus == made.machine.cores[0].cpus
    for setting in made.settings:
        assert [turn.round for turn in setting.turns] == [0, 1, 2]
        assert all(len(turn.steps) >= 3 for turn in setting.turns)
        assert setting.summary is not None
        assert setting.summary.cpu_seconds > 0
        assert setting.name in done.stdout
    assert by_name["1core"].summary
    assert by_name["1core"].summary.efficiency == pytest.approx(1 / len(made.machine.cores))
    assert raw.exists()
    assert not remaining(with_argument, losses)


def test_a_gan_s_step_holds_both_graphs(profiled: Callable[[str], Done], tmp_path: Path) -> None:
    signatures, _ = step_of(profiled("gan").profile)
    plan = write_plan(tmp_path / "plan.json", signatures)
    output = tmp_path / "bench.json"
    done = dltune(
        *("--plan", plan, "--against", "recommended,default", "--no-one-core", "--rounds", 2),
        *("--seconds-per-turn", 0, "-o", output, "--", *GAN),
    )
    assert done.returncode == 0, done.stderr
    for setting in benches.load(output).settings:
        assert [len(turn.steps) >= 3 for turn in setting.turns] == [True, True]


@pytest.mark.skipif(len(topology.local().cores) < 2, reason="needs two cores")
def test_ranks_take_their_turns_together_each_on_its_share(tape_plan: Path, tmp_path: Path) -> None:
    output, losses = tmp_path / "bench.json", tmp_path / "losses"
    ranks = [
        f"OMPI_COMM_WORLD_LOCAL_RANK={rank} OMPI_COMM_WORLD_LOCAL_SIZE=2 "
        f"{shlex.join(TAPE)} --losses {losses}{rank} &"
        for rank in (0, 1)
    ]
    done = dltune(
        *("--plan", tape_plan, "--against", "recommended,plan", "--no-one-core", "--rounds", 2),
        *("--seconds-per-turn", 0, "-o", output, "--", "sh", "-c", " ".join([*ranks, "wait"])),
    )
    assert done.returncode == 0, done.stderr
    made = benches.load(output)
    part = -(-len(made.machine.cores) // 2)
    for setting in made.settings:
        assert setting.intra <= part
        assert setting.predicted is None
        assert [len(turn.steps) >= 3 for turn in setting.turns] == [True, True]
    for rank in (0, 1):
        assert not remaining(with_argument, f"{losses}{rank}")


@pytest.mark.skipif(len(topology.local().cores) < 2, reason="needs two cores")
def test_a_job_that_ends_in_the_first_round_keeps_what_was_measured(
    tape_plan: Path, tmp_path: Path
) -> None:
    """It runs out of steps where it is confined to one core: after its first turn and one more."""
    script, output = tmp_path / "script.py", tmp_path / "bench.json"
    script.write_text(
        "import os, runpy, sys\n"
        f"sys.path.insert(0, {str(JOBS)!r})\n"
        f"confined = len(os.sched_getaffinity(0)) < {len(os.sched_getaffinity(0))}\n"
        "sys.argv[1:] = ['--steps', '8'] if confined else []\n"
        f"runpy.run_path({TAPE[1]!r}, run_name='__main__')\n"
    )
    done = dltune(
        *("--plan", tape_plan, "--against", "recommended", "--rounds", 3),
        *("--seconds-per-turn", 0, "-o", output, "--", sys.executable, script),
    )
    assert done.returncode == 2, done.stderr
    assert "before each setting had a turn; the completed turns are kept" in done.stderr
    made = benches.load(output)
    assert made.partial == "the job under 1core ended (exit code 0) in round 1 of 3"
    assert [len(setting.turns) for setting in made.settings] == [1, 0]
    assert f"this comparison is partial: {made.partial}" in done.stdout


def test_a_job_that_dies_keeps_the_rounds_before(tape_plan: Path, tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    done = dltune(
        *("--plan", tape_plan, "--against", "recommended,3x1", "--no-one-core", "--rounds", 100),
        *("--seconds-per-turn", 0, "-o", output),
        *("--", sys.executable, JOBS / "dies.py", "--steps", 40, "--losses", tmp_path / "losses"),
    )
    assert done.returncode == 1, done.stderr
    assert "died, as asked" in done.stderr
    made = benches.load(output)
    assert made.partial is not None
    assert made.partial.startswith("the job under recommended ended (exit code 1) in round")
    assert f"this comparison is partial: {made.partial}" in done.stdout
    assert all(setting.turns for setting in made.settings)
    assert not remaining(with_argument, tmp_path / "losses")


def test_a_job_of_other_graphs_is_refused(tmp_path: Path) -> None:
    plan = write_plan(tmp_path / "plan.json", ("0123456789abcdef",))
    done = dltune(
        *("--plan", plan, "--against", "recommended", "--no-one-core", "--", *TAPE, "--steps", 3)
    )
    assert done.returncode == 2
    assert "the plan was made for other graphs than those that the job runs" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupt_keeps_what_was_measured(tape_plan: Path, tmp_path: Path) -> None:
    output, losses = tmp_path / "bench.json", tmp_path / "losses"
    command = [
        *(sys.executable, "-m", "dltune", "bench", "--plan", tape_plan, "--no-one-core"),
        *("--against", "recommended,3x1", "--rounds", 10_000, "--seconds-per-turn", 0),
        *("-o", output, "--", *TAPE, "--losses", losses),
    ]
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        while child.poll() is None and not output.exists():
            time.sleep(0.2)
        child.terminate()
        stdout, stderr = child.communicate(timeout=240)
    assert child.returncode == 143, stderr
    assert "stopped by SIGTERM; the completed turns are kept" in stderr
    assert "this comparison is partial: interrupted in round" in stdout
    made = benches.load(output)
    assert made.partial is not None
    assert made.partial.startswith("interrupted in round")
    assert not remaining(with_argument, losses)
