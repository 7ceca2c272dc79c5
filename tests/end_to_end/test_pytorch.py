"""PyTorch jobs, unmodified and in an environment of their own: profiled, planned, run, bench."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from profiled_jobs import JOBS, Done, profile, profile_of_one_that_dies
from torches import TORCH_PYTHON, needs_torch

from dltune.job import protocol
from dltune.job.launch import Job
from dltune.job.protocol import Orders
from dltune.plan.plan import load_plan
from dltune.schemas import bench as benches
from dltune.schemas import diagnosis as diagnoses
from dltune.schemas import profile as profiles
from dltune.schemas.graph import parse_key
from dltune.schemas.profile import Profile, Step
from dltune.schemas.settings import Choice, SettingsPlan
from dltune.system import topology
from dltune.system.perf import events
from dltune.system.proc.stat import threads as threads_of

pytestmark = [pytest.mark.tensorflow, needs_torch]

JOB = [TORCH_PYTHON, JOBS / "torch_conv.py"]
STEPS = 200


def dltune(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dltune", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=550)


def kinds(step: Step) -> Counter[str]:
    return Counter(node.type for node in step.nodes)


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return profile(tmp_path_factory.mktemp("profiled"), JOB)


@pytest.fixture(scope="module")
def measured(profiled: Done) -> Profile:
    return profiled.profile


def test_a_step_ends_with_the_optimizers(measured: Profile) -> None:
    assert (measured.framework.name, measured.partial) == ("pytorch", None)
    (step,) = measured.steps
    assert step.name == "Optimizer.step#SGD.step"
    # validation, which computes without gradients, is none of it
    assert kinds(step)["aten::conv2d"] == 2
    assert kinds(step)["aten::convolution_backward"] == 2
    assert kinds(step)["DataLoader"] == 1
    assert step.executions >= 3
    passes = [node.name.partition("/")[0] for node in step.nodes]
    assert passes == sorted(passes, key=["forward", "backward", "optimizer"].index)
    assert {node.type for node in step.nodes if node.name.startswith("backward/")} >= {
        "aten::convolution_backward"
    }


def test_ops_of_the_backward_pass_are_those_of_an_op(profiled: Done) -> None:
    (step,) = profiled.profile.steps
    names = [node.name for node in step.nodes]
    of = {node.name: [names[place] for place in node.control[1:]] for node in step.nodes}
    # of the network's layers, the last one first
    gradients = [of[name] for name in names if "aten::convolution_backward" in name]
    assert gradients == [["forward/aten::conv2d_2"], ["forward/aten::conv2d_1"]]
    assert of["backward/aten::mm_1"] == ["forward/aten::linear_2"]
    assert not any(of[name] for name in names if not name.startswith("backward/"))
    title = "forward and backward pass of each op, all runs in a step\n"
    table = profiled.stdout.partition(title)[2]
    rows = [line.split() for line in table.partition("\n\n")[0].splitlines()]
    assert rows[0][-4:] == ["forward", "ms", "backward", "ms"]
    # the one step that was sampled: on a busy machine any op can take most of it
    spent: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    keys = [profiled.profile.ops[node.op].key if node.op is not None else "" for node in step.nodes]
    for key, node in zip(keys, step.nodes, strict=True):
        spent[key][0] += node.seconds
        for place in node.control[1:]:
            spent[keys[place]][1] += node.seconds
    heaviest = max((both for both in spent.values() if both[1]), key=sum)
    assert min(heaviest) > 0
    first = next(row for row in rows if row[0].startswith("aten::"))
    assert first[-2:] == [f"{seconds * 1e3:.3f}" for seconds in heaviest]


def test_it_is_planned_over_processes_and_run_so(profiled: Done, tmp_path: Path) -> None:
    """By the layers that the profile has; two processes have the losses of one."""
    plan, topology = tmp_path / "plan.json", tmp_path / "topology.json"
    # so slow that two are worth it
    slow = {
        "schema": "dltune.topology/1",
        "name": "slow",
        "kinds": [{"name": "slow", "flops": 1e9, "bandwidth": 1e9}],
        "devices": [{"name": name, "kind": "slow", "host": "h"} for name in ("d0", "d1")],
        "links": [{"ends": ["d0", "d1"], "bandwidth": 1e9, "latency": 1e-5}],
    }
    topology.write_text(json.dumps(slow))
    cluster = ("--topology", topology, "--for", "torch", "--proposals", 100, "-o", plan)
    planned = dltune("plan", "parallelism", profiled.output, *cluster)
    assert planned.returncode == 0, planned.stderr
    section = load_plan(plan).sections["parallelism"]
    types = {one.name: one.type for one in section.operators}
    assert types == {
        "0": "conv 3x3/1 bias",
        "1": "batch_norm",
        "3": "conv 3x3/2 bias",
        "6": "dense bias",
        "8": "dense bias",
    }
    losses = {}
    for under in ((), ("-m", "dltune", "run", "--plan", plan, "--", TORCH_PYTHON)):
        file = tmp_path / f"losses{len(under)}"
        command = [sys.executable if under else TORCH_PYTHON, *under, *JOB[1:]]
        command += ["--steps", 10, "--losses", file]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        losses[bool(under)] = [float.fromhex(line) for line in file.read_text().splitlines()]
    assert "the outputs of 5 operators divided as planned" in done.stderr
    assert losses[True] == pytest.approx(losses[False], abs=1e-4)


def test_ops_are_known_by_their_shapes_and_arguments(measured: Profile) -> None:
    convolutions = [op for op in measured.ops if op.type == "aten::conv2d"]
    first = next(op for op in convolutions if "[16,3,24,24]" in op.key)
    key = parse_key(first.key)
    assert [tensor.shape for tensor in key.inputs] == [(16, 3, 24, 24), (16, 3, 3, 3), (16,)]
    assert key.integers("padding") == (1, 1)
    assert key.attributes["groups"] == "1"
    assert first.output_bytes == 16 * 16 * 24 * 24 * 4


def test_ops_were_run_on_one_thread_and_on_all(measured: Profile) -> None:
    cores = len(topology.local().cores)
    for op in measured.ops:
        if op.type in ("aten::conv2d", "aten::convolution_backward"):
            assert {time.threads for time in op.times} >= {1, cores}


def test_ops_are_counted_in_the_threads_of_their_teams(measured: Profile) -> None:
    assert measured.counters is not None
    names = {event for group in measured.counters.groups for event in group}
    for op in measured.ops:
        for case in op.times:
            if case.threads == 1:  # on several, it may be shorter than to read them takes
                assert {count.event for count in case.counts} == names, op.key
            assert all(count.samples > 0 for count in case.counts)
    if "task-clock" not in names:
        return
    clock = {
        op.key: count.value
        for op in measured.ops
        for case in op.times
        for count in case.counts
        if case.threads == 1 and count.event == "task-clock"
    }
    # time on a core, which other work there does not change: an op's own time, measured in other
    # steps, may hold waits for it
    convolutions = [op for op in measured.ops if op.type == "aten::conv2d"]
    assert convolutions
    for op in convolutions:
        _, filters, _ = parse_key(op.key).inputs
        operations = 2 * op.output_bytes / 4 * math.prod(filters.shape[1:])
        assert clock[op.key] > operations / 1e12, "no core computes as fast"
    by_type = {kind: [v for key, v in clock.items() if key.startswith(f"aten::{kind}(")]
               for kind in ("convolution_backward", "relu")}  # fmt: skip
    assert max(by_type["convolution_backward"]) > max(by_type["relu"])
    assert measured.counters.overhead is not None


def perf_events_of(pid: int) -> int:
    found = 0
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # the job has closed it meanwhile
            found += "perf_event" in str(handle.readlink())
    return found


def test_teams_of_several_sizes_cost_no_threads() -> None:
    """As a plan of another machine would have them: GNU's runtime keeps one and all alone."""
    widths = {"aten::conv2d": 2, "aten::linear": 3, "aten::relu": 1}
    cores = [f"core\t0\t{core % 2}" for core in range(4)]
    keys: dict[int, str] = {}
    signatures: dict[int, str] = {}
    ran: set[tuple[str, int]] = set()
    said: list[str] = []
    existed: list[set[int]] = []
    clocks: list[float] = []
    opened = left = 0
    with Job(
        [*map(str, JOB)],
        greet=lambda _: [*cores, "cores", *Orders(1, discover=True).lines()],
        environment={"OMP_NUM_THREADS": "4", "MKL_DYNAMIC": "FALSE"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as job:
        steps = 0
        for event in filter(None, job.events(0.2)):
            match event.message:
                case protocol.Complaint(text):
                    said.append(text)
                case protocol.Device() as device:
                    assert device.openmp.startswith("libgomp")  # of some wheels: with a hash
                    assert device.intra == 4
                case protocol.Graph() as graph:
                    signatures[graph.id] = graph.signature
                case protocol.Key() as key:
                    keys[key.id] = key.key
                case protocol.Execution(version=1) as execution:
                    steps += 1
                    if steps == 8:
                        counted = [events.parse("task-clock")]
                        targets = [signatures[execution.graph]]
                        orders = Orders(2, targets, events=True, counters=counted)
                        for key in keys.values():
                            if threads := widths.get(key.partition("(")[0]):
                                orders.ops[key] = (threads, tuple(range(threads)))
                        assert event.process
                        event.process.order(orders.lines())
                case protocol.Execution(version=2) as execution:
                    types = [(keys[one[1]].partition("(")[0], one[2]) for one in execution.events]
                    ran |= {(name, threads) for name, threads in types if name in widths}
                    assert event.process
                    existed.append(threads_of(event.process.pid))
                    counts = {int(index): values for index, _, *values in execution.counts}
                    clocks += [
                        counts[place][0]
                        for place, kind in enumerate(types)
                        if kind == ("aten::relu", 1)
                    ]
                    opened = max(opened, perf_events_of(event.process.pid))
                    if len(existed) == 20:
                        event.process.order(Orders(3, [signatures[execution.graph]]).lines())
                case protocol.Execution(version=3):
                    assert event.process
                    left = perf_events_of(event.process.pid)
                    break
    assert opened >= 4
    assert left == 0
    assert clocks
    assert min(clocks) > 0
    assert ran == {("aten::conv2d", 4), ("aten::linear", 4), ("aten::relu", 1)}
    assert existed[0] == existed[-1]
    (sentence,) = (text for text in said if "GNU's OpenMP runtime" in text)
    assert sentence.startswith("some ops get 4 threads instead of 2: ")


def test_where_a_step_goes(measured: Profile) -> None:
    parts = {part.name: part.seconds for part in measured.steps[0].parts}
    assert parts["ops"] > 0
    assert parts["input"] > 0
    assert parts["python"] > 0
    assert parts["executor"] == 0
    assert sum(parts.values()) == pytest.approx(measured.steps[0].wall.median)


def losses(folder: Path, name: str) -> list[object]:
    return ["--steps", STEPS, "--losses", folder / name, "--threads", folder / f"{name}.threads"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("plain")
    command = [*JOB, *losses(folder, "losses")]
    subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=300)
    return (folder / "losses").read_text().splitlines()


def enforced(folder: Path, plan: Path, *more: object) -> dict[str, object]:
    """What came of a job most of whose steps ran under the plan, however long dltune took."""
    ready, told = folder / "ready", folder / "stderr"
    job = [*JOB, *losses(folder, "losses"), "--wait-for", ready, *more]
    outcome = folder / "outcome.json"
    run = ["run", "--json", outcome, "--plan", plan, "--", *job]
    command = [sys.executable, "-m", "dltune", *map(str, run)]
    with told.open("w") as stderr, subprocess.Popen(command, stderr=stderr) as running:
        try:
            until = time.monotonic() + 240
            while "the plan is in force" not in told.read_text():
                assert running.poll() is None, told.read_text()
                assert time.monotonic() < until
                time.sleep(0.05)
        except BaseException:
            running.terminate()
            raise
        finally:
            ready.touch()
        running.wait(timeout=240)
    assert running.returncode == 0, told.read_text()
    return json.loads(outcome.read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("strategy", ["per-type", "bitwise"])
def test_a_job_under_its_plan(
    profiled: Done, plain: list[str], tmp_path: Path, strategy: str
) -> None:
    plan = tmp_path / "plan.json"
    how = ["--bitwise"] if strategy == "bitwise" else ["--strategy", strategy]
    made = dltune("plan", profiled.output, *how, "-o", plan)
    assert made.returncode == 0, made.stderr
    uniform = load_plan(plan).sections["threads"].uniform.intra
    other = ["--sets", 1 if uniform > 1 else 2] if strategy == "per-type" else []
    outcome = enforced(tmp_path, plan, *other)
    computed = (tmp_path / "losses").read_text().splitlines()
    assert len(computed) == len(plain) == STEPS
    if strategy == "bitwise":  # each op on as many threads as ever
        assert computed == plain
    else:  # sums in another order, in steps that build on one another
        under = STEPS // 4 + 20
        assert [float.fromhex(one) for one in computed[:under]] == pytest.approx(
            [float.fromhex(one) for one in plain[:under]], rel=1e-3
        )
    (process,) = outcome["sections"]["threads"]  # type: ignore[index]
    assert process["steps"] >= STEPS // 2
    # once the plan is in force no thread comes or goes, nor is there another number of them, as the
    # script wants after half of its steps
    before, after = (tmp_path / "losses.threads").read_text().splitlines()
    assert before == after
    if other:
        assert after.split()[0] == str(uniform)


def test_a_page_of_it_and_what_differs_from_another_time(profiled: Done, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = dltune("report", profiled.output, "-o", page)
    assert done.returncode == 0, done.stderr
    assert "aten::conv2d" in page.read_text()
    compared = dltune("compare", profiled.output, profiled.output, "--json")
    assert compared.returncode == 0, compared.stderr
    found = json.loads(compared.stdout)
    assert found["same_graph"]
    assert {one["verdict"] for one in (*found["steps"], *found["ops"])} == {"noise"}
    assert any(one["type"] == "aten::conv2d" for one in found["ops"])


def test_a_plan_against_the_jobs_own_threads(profiled: Done, tmp_path: Path) -> None:
    plan, bench = tmp_path / "plan.json", tmp_path / "bench.json"
    assert dltune("plan", profiled.output, "-o", plan).returncode == 0
    turns = ["--rounds", 3, "--seconds-per-turn", 0.3, "--no-one-core"]
    done = dltune(
        "bench", "--plan", plan, "--against", "default,plan", *turns, "-o", bench, "--", *JOB
    )
    assert done.returncode == 0, done.stderr
    found = benches.load(bench)
    assert found.framework.name == "pytorch"
    assert {setting.name: len(setting.turns) for setting in found.settings} == {
        "default": 3,
        "plan": 3,
    }


def test_what_is_compiled_is_known_by_its_kernels(tmp_path: Path) -> None:
    done = profile(tmp_path, [TORCH_PYTHON, JOBS / "torch_compiled.py"])
    found = done.profile
    (step,) = found.steps
    kernels = {op.key: op for op in found.ops if "cpp_fused_" in op.key}
    passes = {node.name.partition("/")[0] for node in step.nodes if "cpp_fused_" in node.type}
    assert passes == {"forward", "backward"}
    # they run on the threads that they were compiled for
    assert all(op.own and not op.times for op in kernels.values())
    assert {node.name.partition("/")[0] for node in step.nodes if node.type == "aten::mm"}
    assert any("kernels of torch.compile (cpp_fused)" in n for n in found.notes)
    plan = tmp_path / "plan.json"
    made = dltune("plan", done.output, "--strategy", "per-type", "-o", plan)
    assert made.returncode == 0, made.stderr
    assert not kernels.keys() & {op.key for op in load_plan(plan).sections["threads"].ops}


def test_two_networks_that_are_trained_in_turns(tmp_path: Path) -> None:
    done = profile(tmp_path, [*JOB, "--adversary"])
    assert len(done.profile.steps) == 2
    assert [kinds(step)["aten::conv2d"] for step in done.profile.steps] == [2, 2]
    # of a gradient's hook, on the way to a node of autograd's
    assert sorted(kinds(step)["aten::clamp"] for step in done.profile.steps) == [0, 1]


def test_several_batches_for_a_step_and_workers_that_load_them(tmp_path: Path) -> None:
    done = profile(tmp_path, [*JOB, "--accumulate", 2, "--workers", 1])
    (step,) = done.profile.steps
    assert kinds(step)["aten::conv2d"] == 4
    assert kinds(step)["DataLoader"] == 2


STRUCK = (TORCH_PYTHON, JOBS / "torch_struck.py")
# so that the climb goes on for longer than a busy machine keeps a test from seeing it begin
PAUSES = ("--pause", 0.2, "--later", 2)


@pytest.mark.parametrize("what", ["--fork", "--profile"])
def test_a_job_that_forks_or_profiles_itself(what: str, tmp_path: Path) -> None:
    done = profile(tmp_path, [*STRUCK, what])
    assert done.code == 0
    (step,) = done.profile.steps
    assert kinds(step)["aten::conv2d"] == 1
    assert done.profile.partial is None


def test_a_job_that_dies(tmp_path: Path) -> None:
    done = profile_of_one_that_dies(tmp_path, [*STRUCK, *PAUSES, "--until", tmp_path / "enough"])
    assert done.code == 1
    kept = profiles.load(done.output)
    assert kept.partial == "the job ended (exit code 1) before the measurement was complete"
    assert kinds(kept.steps[0])["aten::conv2d"] == 1
    assert "RuntimeError: no more examples" in done.stderr


def test_a_job_that_crashes(tmp_path: Path) -> None:
    done = profile_of_one_that_dies(
        tmp_path, [*STRUCK, *PAUSES, "--signal", "--until", tmp_path / "enough"]
    )
    assert done.code == 128 + signal.SIGSEGV
    assert "the job crashed with SIGSEGV while dltune's plugin was loaded" in done.stderr
    assert profiles.load(done.output).partial


def test_a_script_that_updates_its_parameters_itself(tmp_path: Path) -> None:
    done = profile(tmp_path, [TORCH_PYTHON, JOBS / "torch_manual.py"])
    assert done.profile.partial is None
    (step,) = done.profile.steps
    assert step.name == "backward pass"
    passes = Counter(tuple(node.name.rpartition("_")[0].split("/")) for node in step.nodes)
    assert passes["forward", "aten::sub_"] == 2
    assert passes["forward", "aten::matmul"] == 2
    assert passes["backward", "aten::mm"] == 3


def test_optimizers_that_step_within_the_backward_pass(tmp_path: Path) -> None:
    done = profile(tmp_path, [TORCH_PYTHON, JOBS / "torch_manual.py", "--hooked"])
    (step,) = done.profile.steps
    assert step.name == "backward pass"
    assert sum(node.name.startswith("backward/aten::add_") for node in step.nodes) == 2
    assert not any("()" in op.key for op in done.profile.ops)


def test_a_job_that_does_not_train(tmp_path: Path) -> None:
    done = profile(tmp_path, [TORCH_PYTHON, "-c", "import torch; torch.ones(3).sum()"])
    assert done.code == 2
    assert "nor updated parameters with PyTorch" in done.said


def test_a_plan_for_another_framework(profiled: Done, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert dltune("plan", profiled.output, "-o", plan, "--strategy", "per-type").returncode == 0
    job = [sys.executable, JOBS / "gradient_tape.py"]
    done = dltune("run", "--plan", plan, "--", *job)
    assert done.returncode == 2
    assert "the plan is for PyTorch" in done.stderr
    assert "Traceback" not in done.stderr


SMALL = """
import time

import torch
from torch import nn

model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(8)])
optimizer = torch.optim.Adam(model.parameters())
decayed, inputs = 1e-39 * torch.rand(64, 64), torch.randn(4, 8)
until = time.monotonic() + 550
while time.monotonic() < until:
    optimizer.zero_grad()
    (model(inputs).sum() + (decayed @ decayed).sum()).backward()
    optimizer.step()
    decayed = decayed * 0.999 + 1e-42
"""


def test_a_diagnosis_of_many_small_ops(tmp_path: Path) -> None:
    job, kept, plan = tmp_path / "small.py", tmp_path / "diagnosis.json", tmp_path / "plan.json"
    job.write_text(SMALL)
    files = ("-o", kept, "--plan", plan)
    done = dltune("diagnose", "--budget", "150s", *files, "--", TORCH_PYTHON, job)
    assert done.returncode == 0, done.stderr
    diagnosis = diagnoses.load(kept)
    causes = {one.cause for one in diagnosis.findings}
    # beside other work it is that, and what its threads wait for each other, which cost more
    assert causes & {"op-calls", "loop-optimizer", "too-many-threads", "neighbour"}
    if "loop-optimizer" in causes:
        section = load_plan(plan).of(SettingsPlan)
        assert section is not None
        assert Choice("fused_optimizer", "on") in section.chosen
    assert diagnosis.observation is not None
    graphs = diagnosis.observation.graphs
    assert graphs is not None
    assert graphs.denormal == graphs.denormal_looks >= 4, "one look each two seconds"
    # what they cost differs between CPUs
    assert graphs.flushed is not None
    assert graphs.flushed.pairs == 20
