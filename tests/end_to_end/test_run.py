"""`dltune run` and `dltune.apply` on real TensorFlow jobs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from hand_plans import plan_for, write
from running import interrupted

from dltune.job.launch import Job, Process
from dltune.job.protocol import Execution, Graph, Key, Orders, machine_lines, uniform_line
from dltune.plan.plan import with_sections
from dltune.plan.threads.show import RECORD_EVERY
from dltune.schemas import graph
from dltune.schemas import profile as profiles
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Uniform
from dltune.system import topology

pytestmark = pytest.mark.tensorflow

JOBS = Path(__file__).parents[1] / "jobs"
PYTHON = sys.executable
# seconds after which a test gives up
WAIT = 240


def dltune(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [PYTHON, "-m", "dltune", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=550,
        env={**os.environ, **(env or {})},
    )


def read(path: Path) -> list[float]:
    return [float(line) for line in path.read_text().splitlines()] if path.exists() else []


@dataclass
class Enforced:
    """A `dltune run` that has ended, and the losses of its job."""

    stdout: str
    stderr: str
    losses: list[float]


def enforced(folder: Path, job: str, steps: int, *options: object) -> Enforced:
    """Run a job for so many steps more once dltune says that the plan is enforced.

    However fast the job's steps are, and however long dltune takes to answer.
    """
    with training("run", *options, folder=folder, job=job) as running:
        until = time.monotonic() + WAIT
        while "the plan is in force" not in (folder / "err").read_text():
            assert running.poll() is None, (folder / "err").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        trained(folder, steps, running)
        (folder / "enough").touch()
        code = running.wait(timeout=WAIT)
    done = Enforced(
        (folder / "out").read_text(), (folder / "err").read_text(), read(folder / "losses")
    )
    assert code == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def machine() -> Machine:
    return topology.local()


@pytest.fixture
def tape(profiled) -> Path:
    """A profile of the GradientTape job."""
    return profiled("gradient_tape").output


@contextlib.contextmanager
def training(
    *arguments: object, folder: Path, job: str = "gradient_tape.py", under: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A dltune whose job has just trained a step, and trains until there is a file `enough`.

    What they say is in the files `out` and `err`.
    """
    options = ["--losses", folder / "losses", "--until", folder / "enough"]
    command = [*under, PYTHON, "-m", "dltune", *arguments, "--", PYTHON, JOBS / job, *options]
    with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
        running = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
    try:
        trained(folder, 1, running)
        yield running
    finally:
        running.terminate()  # passed on to the job, which ends
        running.wait()


def trained(folder: Path, steps: int, running: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until the job has trained `steps` more steps."""
    path = folder / "losses"
    before = len(read(path))
    until = time.monotonic() + WAIT
    while len(read(path)) < before + steps:
        assert running is None or running.poll() is None, (folder / "err").read_text()
        assert time.monotonic() < until
        time.sleep(0.05)


def controlled(profile: profiles.Profile) -> list[str]:
    return [op.key for op in profile.ops if op.times]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_an_order_for_a_node_goes_before_that_for_its_op(machine):
    """Variables are read by nodes of one key: one of them on a single core, the others on two."""

    def greet(process: Process) -> list[str]:
        return [*machine_lines(machine), *Orders(1, discover=True).lines()]

    graphs: dict[int, Graph] = {}
    keys: dict[int, str] = {}
    named: dict[int, str] = {}  # nodes of the key that is ordered
    threads: dict[str, set[int]] = {}
    command = [PYTHON, str(JOBS / "gradient_tape.py")]  # it trains until the orders were seen
    with Job(command, greet=greet, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        for event in job.events(1.0):
            message = event.message if event else None
            if isinstance(message, Graph):
                graphs[message.id] = message
            elif isinstance(message, Key):
                keys[message.id] = message.key
            elif isinstance(message, Execution) and message.version == 1 and not named:
                nodes = graphs[message.graph].nodes
                reads = {e[0]: e[1] for e in message.events if "ReadVar" in nodes[e[0]].type}
                if message.number < 2 or len(reads) < 3:
                    continue
                named = {node: nodes[node].name for node in reads}
                signature = graphs[message.graph].signature
                one = graph.of_node(signature, min(named.values()))
                ops = {keys[key]: (2, (0, 1)) for key in reads.values()} | {one: (1, (1,))}
                orders = Orders(2, targets=[signature], events=True, ops=ops)
                event.process.order(orders.lines())
            elif isinstance(message, Execution) and message.version == 2:
                for node, _, count, *_ in message.events:
                    if node in named:
                        threads.setdefault(named[node], set()).add(count)
                if message.number > 10:
                    break
    assert threads.pop(min(named.values())) == {1}
    assert len(threads) >= 2
    assert set(map(tuple, threads.values())) == {(2,)}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_each_op_runs_on_its_threads_and_cores(machine):
    """By the plugin's record and by the affinity and CPU time of the workers in /proc: oneDNN's
    kernels (float32) and Eigen's (float64), each op on the cores that were ordered."""
    ordered = {
        "Conv2D(float[8": (1, (0,)),
        "Conv2D(double[4": (2, (0, 1)),
        "MatMul(float[1024": (2, (0, 1)),
        "MatMul(double[640": (1, (1,)),
    }
    keys: dict[int, str] = {}
    seen: dict[str, set[tuple[int, str]]] = {name: set() for name in ordered}
    target = None

    def plain_name(key: str) -> str:
        return key.removeprefix("_Mkl").removeprefix("Native")

    def greet(process: Process) -> list[str]:
        pools = uniform_line(2, 1)
        return [*machine_lines(machine), pools, *Orders(1, discover=True).lines()]

    command = [PYTHON, str(JOBS / "two_convs.py")]
    with Job(command, greet=greet, stdout=subprocess.DEVNULL) as job:
        for event in job.events(1.0):
            message = event.message if event else None
            if isinstance(message, Key):
                keys[message.id] = message.key
            elif isinstance(message, Graph) and any(
                n.type.endswith("MatMul") for n in message.nodes
            ):
                target = message
            elif isinstance(message, Execution) and target and message.graph == target.id:
                if message.version == 1 and message.number == 3:
                    ops = {
                        key: ordered[name]
                        for key in keys.values()
                        for name in ordered
                        if plain_name(key).startswith(name)
                    }
                    assert len(ops) == 4, "\n".join(sorted(keys.values()))
                    orders = Orders(
                        2, targets=[target.signature], events=True, serial=True, ops=ops
                    )
                    event.process.order(orders.lines())
                elif message.version == 2:
                    for _, key, threads, _, _, _, used in message.events:
                        for name in ordered:
                            if plain_name(keys[key]).startswith(name):
                                seen[name].add((threads, used))
                    if message.number > 40:
                        break
        pid = event.process.pid
        workers = {
            (task / "comm").read_text().strip(): task
            for task in Path(f"/proc/{pid}/task").iterdir()
        }
        placed = {
            name: next(
                line.split()[1]
                for line in (task / "status").read_text().splitlines()
                if line.startswith("Cpus_allowed_list")
            )
            for name, task in workers.items()
            if name.startswith("dltune/")
        }
        busy = {
            name: int((task / "stat").read_text().rsplit(") ", 1)[1].split()[11])
            for name, task in workers.items()
            if name.startswith("dltune/")
        }
    for name, (threads, cores) in ordered.items():
        assert {n for n, _ in seen[name]} == {threads}, name
        used = {int(mask, 16) for _, mask in seen[name]}
        allowed = sum(1 << core for core in cores)
        assert allowed in used, (name, used)
        assert all(mask & ~allowed == 0 for mask in used), (name, used)
    assert placed  # each from its first task on
    assert all(name == f"dltune/{cpus}" for name, cpus in placed.items())
    assert sum(busy.values()) > 0


def test_a_plan_at_the_jobs_own_threads_keeps_every_bit(tape, machine, plain, tmp_path):
    profile = profiles.load(tape)
    own = profile.settings.intra
    entries = {key: (own, tuple(range(len(machine.cores)))) for key in controlled(profile)}
    plan = write(plan_for(profile, machine, entries), tmp_path / "plan.json")
    planned = enforced(tmp_path, "gradient_tape.py", 30, "--plan", plan).losses
    first = plain()
    same = planned[: len(first)] == first[: len(planned)]
    if not same and first != plain(again=1):
        pytest.skip("two plain runs of the job differ here")
    assert same


def test_other_thread_counts_change_results_by_rounding_only(tape, machine, plain, tmp_path):
    profile = profiles.load(tape)
    entries = dict.fromkeys(controlled(profile), (1, None))
    plan = write(plan_for(profile, machine, entries), tmp_path / "plan.json")
    planned = enforced(tmp_path, "gradient_tape.py", 30, "--plan", plan).losses[:60]
    assert planned[0] == pytest.approx(plain()[0], rel=1e-5)
    assert planned == pytest.approx(plain()[: len(planned)], rel=1e-2)


def test_co_running_keeps_the_numbers_and_ends(tape, machine, plain, tmp_path):
    profile = profiles.load(tape)
    own = profile.settings.intra
    entries = {key: (1 if i % 2 else own, None) for i, key in enumerate(controlled(profile))}
    plan = write(plan_for(profile, machine, entries, corun=True), tmp_path / "plan.json")
    options = ("--plan", plan, "--json", tmp_path / "o")
    planned = enforced(tmp_path, "gradient_tape.py", 60, *options).losses
    assert planned[0] == pytest.approx(plain()[0], rel=1e-5)
    outcome = json.loads((tmp_path / "o").read_text())["sections"]["threads"][0]
    assert not outcome["unmet"]
    assert outcome["in_flight"] > 0


def test_the_summary_tells_what_was_met(tape, machine, tmp_path):
    profile = profiles.load(tape)
    keys = controlled(profile)
    entries = dict.fromkeys(keys, (1, (0,))) | {"NoSuchOp(float[1])": (1, None)}
    plan = write(plan_for(profile, machine, entries), tmp_path / "plan.json")
    # one step in RECORD_EVERY tells what dltune's own bookkeeping takes
    done = enforced(tmp_path, "gradient_tape.py", 3 * RECORD_EVERY, "--plan", plan)
    assert done.stdout.strip() == "trained"
    assert f"{len(keys)} of {len(keys) + 1} planned ops ran as planned" in done.stderr
    assert "did not run as planned: NoSuchOp(float[1])" in done.stderr
    assert "dltune's own work, in the one step of 64 that it records, took" in done.stderr


def test_the_scripts_own_threads_are_overridden_and_told(profiled, tmp_path, machine):
    plan = plan_for(profiled("own_threads").profile, machine, {})
    section = msgspec.structs.replace(plan.sections["threads"], uniform=Uniform(1, 2))
    plan = write(with_sections(plan, threads=section), tmp_path / "plan.json")
    done = enforced(tmp_path, "own_threads.py", 3, "--plan", plan)
    assert "the plan overrode settings of the script" in done.stderr


def test_a_plan_for_other_graphs_is_refused(tape, machine, tmp_path):
    profile = profiles.load(tape)
    plan = write(
        plan_for(profile, machine, dict.fromkeys(controlled(profile), (1, None))),
        tmp_path / "plan.json",
    )
    done = dltune("run", "--plan", plan, "--", PYTHON, JOBS / "gan.py")
    assert done.returncode == 2
    assert "made for other graphs" in done.stderr
    assert "Traceback" not in done.stderr
    partial = enforced(tmp_path, "gan.py", 3, "--partial", "--plan", plan)
    assert "as far as it applies to other graphs" in partial.stderr
    assert "planned ops ran as planned" in partial.stderr


def test_a_plan_for_another_machine_is_refused(tape, machine, tmp_path):
    plan = plan_for(profiles.load(tape), machine, {})
    plan = msgspec.structs.replace(plan, machine="0" * 16)
    done = dltune("run", "--plan", write(plan, tmp_path / "p"), "--", PYTHON, "-c", "pass")
    assert done.returncode == 2
    assert "--partial" in done.stderr


def test_the_jobs_exit_code_is_passed_on(tape, machine, tmp_path):
    plan = write(plan_for(profiles.load(tape), machine, {}), tmp_path / "plan.json")
    done = dltune("run", "--plan", plan, "--", PYTHON, "-c", "raise SystemExit(7)")
    assert done.returncode == 7
    done = dltune("run", "--plan", plan, "--", PYTHON, "-c", "pass")
    assert done.returncode == 2
    assert "neither imported TensorFlow nor" in done.stderr


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_ranks_share_the_cores(tape, machine, tmp_path):
    plan = write(plan_for(profiles.load(tape), machine, {}), tmp_path / "plan.json")
    script = "import os, tensorflow; print(sorted(os.sched_getaffinity(0)))"
    for rank, core in enumerate((machine.cores[0], machine.cores[-1])):
        environment = {
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(2),
        }
        done = dltune("run", "--plan", plan, "--", PYTHON, "-c", script, env=environment)
        assert str(core.cpus[0]) in done.stdout
        assert len(json.loads(done.stdout)) == len(machine.cores) // 2 * len(core.cpus)


def test_an_interrupt_reaches_the_job(tape, machine, tmp_path):
    plan = write(plan_for(profiles.load(tape), machine, {}), tmp_path / "plan.json")
    with training("run", "--plan", plan, folder=tmp_path) as running:
        pressed = interrupted(running)
        assert running.returncode in (1, 130)
    assert (tmp_path / "err").read_text().count("KeyboardInterrupt") >= pressed


def test_a_signal_that_is_ignored_ends_neither_dltune_nor_the_job(tape, machine, tmp_path):
    plan = write(plan_for(profiles.load(tape), machine, {}), tmp_path / "plan.json")
    with training("run", "--plan", plan, folder=tmp_path, under=["nohup"]) as running:
        running.send_signal(signal.SIGHUP)
        trained(tmp_path, 20)
        assert running.poll() is None
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=WAIT) == 128 + signal.SIGTERM


def test_apply_from_inside_a_script(tape, machine, plain, tmp_path):
    profile = profiles.load(tape)
    entries = dict.fromkeys(controlled(profile), (profile.settings.intra, None))
    plan = write(plan_for(profile, machine, entries), tmp_path / "plan.json")
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys, runpy\nsys.path.insert(0, {str(JOBS)!r})\n"
        f"import dltune\ndltune.apply({str(plan)!r})\n"
        f"sys.argv = ['x', '--steps', '20', '--losses', {str(tmp_path / 'l')!r}]\n"
        f"runpy.run_path({str(JOBS / 'gradient_tape.py')!r}, run_name='__main__')\n"
        "names = {open(f'/proc/self/task/{t}/comm').read().strip() for t in "
        "__import__('os').listdir('/proc/self/task')}\n"
        "print('workers', any(n.startswith('dltune/') for n in names))\n"
    )
    done = subprocess.run([PYTHON, script], capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    assert "workers True" in done.stdout
    assert read(tmp_path / "l") == plain()[:20]


def test_apply_after_the_devices_exist_is_refused(tape, machine, tmp_path):
    plan = plan_for(profiles.load(tape), machine, {})
    code = (
        "import tensorflow as tf; tf.zeros(1); import dltune\n"
        "from dltune.base.errors import UsageError\n"
        f"try: dltune.apply({str(write(plan, tmp_path / 'plan.json'))!r})\n"
        "except UsageError as e: print(e)\n"
    )
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, timeout=550)
    assert "already created its devices" in done.stdout, done.stderr
