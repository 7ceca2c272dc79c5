"""`dltune profile` on real TensorFlow jobs of every kind, and on those in which it cannot work."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path

import numpy as np
import pytest
from profiled_jobs import (
    JOBS,
    JOBS_THAT_WORK,
    PYTHON,
    Done,
    command,
    profile,
    profile_of_one_that_dies,
    start,
)
from running import remaining, with_mark
from tensorflows import OTHER_PYTHON

from dltune.base.documents import claim
from dltune.schemas import profile as documents
from dltune.schemas.profile import Profile
from dltune.simulate.step_graph import graph, lives, peak
from dltune.system.topology import ladder

pytestmark = pytest.mark.tensorflow


def types(profile: Profile, step: int = 0) -> set[str]:
    return {node.type for node in profile.steps[step].nodes}


@pytest.mark.parametrize("name", JOBS_THAT_WORK)
def test_every_kind_of_job_gives_a_whole_profile(profiled, name):
    done = profiled(name)
    found = done.profile
    assert found.partial is None
    assert not [note for note in found.notes if "understood" in note or "bad" in note]
    assert found.command[1:] == tuple(map(str, JOBS_THAT_WORK[name]))[1:]
    heavy = [op for op in found.ops if op.times]
    counts = {time.threads for op in heavy for time in op.times}
    assert counts <= set(ladder(found.machine, found.interval))
    assert len(counts) >= min(2, len(found.machine.cores))
    assert any("Conv2DBackpropFilter" in op.type for op in heavy)
    for step in found.steps:
        assert step.wall.samples >= 1
        # from its start to the end of its last op a step takes no longer than to the next start
        assert step.span.min <= step.wall.min
        assert any("Grad" in node.type or "Backprop" in node.type for node in step.nodes)
    assert sum(step.share for step in found.steps) == pytest.approx(1)
    assert found.memory is not None
    assert 0 < found.memory.live < found.memory.peak
    assert found.framework.lacks is not None
    assert found.roofs or any("measured only on x86-64" in note for note in found.notes)
    assert f"written to {done.output}" in done.stdout
    told = done.stderr.splitlines()
    assert all(line.startswith("dltune: ") for line in told), "the job's output is out of sight"
    assert len(set(told)) == len(told)


def test_keras_fit_is_one_step_without_its_validation(profiled):
    for name in ("keras_fit", "validation_first"):
        (step,) = profiled(name).profile.steps
        assert "AssignSubVariableOp" in {node.type for node in step.nodes}


def test_several_steps_in_one_execution_are_counted(profiled):
    (step,) = profiled("steps_per_execution").profile.steps
    (single,) = profiled("keras_fit").profile.steps

    def runs(of) -> float:
        return sum(n.repeats for n in of.nodes if "Conv2DBackpropFilter" in n.type)

    # the last execution of an epoch is shorter
    assert 3 * runs(single) < runs(step) <= 4 * runs(single)


@pytest.mark.parametrize("name", ["gradient_tape", "eigen"])
def test_tensors_are_told_with_their_memory(profiled, name):
    """Each node's outputs by slot; the estimate from them and the allocator's own count agree."""
    found = profiled(name).profile
    (step,) = found.steps
    assert step.device.endswith("/task:0/device:CPU:0")
    ran = [node for node in step.nodes if node.start is not None]
    readers = {i for node in step.nodes for i in node.inputs}
    assert all(node.outputs for k, node in enumerate(step.nodes) if node in ran and k in readers)
    for node in ran:
        assert node.output_bytes == sum(tensor.bytes for tensor in node.outputs)
        assert 0 < node.live <= found.memory.peak
        for tensor in node.outputs:
            if tensor.alias is not None:  # memory is handed on whole, or in part
                given = step.nodes[node.inputs[tensor.alias]]
                slot = node.slots[tensor.alias] if node.slots else 0
                assert given.outputs[slot].bytes >= tensor.bytes
    weights = sum(n.output_bytes for n in ran if n.type == "ReadVariableOp")
    assert weights > 1_000_000
    start, end = (
        np.array([-1 if t is None else round(t * 1e9) for t in moments])
        for moments in zip(*((node.start, node.end) for node in step.nodes), strict=True)
    )
    memory = lives(graph(step), start, end)
    most, _, _ = peak(memory)
    agree = []
    for node, moment in zip(step.nodes, end, strict=True):
        # what kernels take while they run is not in the graph: no other must be running
        if node.end is not None and not np.any((start <= moment) & (end > moment)):
            alive = (memory.begin < moment) & (memory.end >= moment)
            level = memory.bytes[alive].sum()
            # the input pipeline may hold a batch more or less, a twelfth of this step's memory
            agree.append(abs(level - (node.live - found.memory.live)) <= 0.1 * most)
    assert len(agree) > 10
    assert sum(agree) >= 0.9 * len(agree)


@pytest.mark.parametrize(
    ("name", "onednn"),
    [("gradient_tape", os.environ["TF_ENABLE_ONEDNN_OPTS"] == "1"), ("eigen", False)],
)
def test_kernels_are_those_that_the_job_asks_for(profiled, name, onednn):
    step = types(profiled(name).profile)
    assert any(kind.startswith("_Mkl") for kind in step) == onednn


def test_both_steps_of_a_gan_are_found(profiled):
    found = profiled("gan").profile
    assert len(found.steps) == 2
    assert all("AssignSubVariableOp" in types(found, step) for step in (0, 1))


@pytest.mark.parametrize("name", ["own_threads", "v1_session"])
def test_the_threads_that_a_script_sets_are_accepted_and_told(profiled, name):
    found = profiled(name).profile
    assert (found.settings.intra, found.settings.inter) == (1, 1)
    assert "intra-op 1, inter-op 1" in profiled(name).stdout


def test_the_jobs_own_python_and_tensorflow_are_told(profiled):
    found = profiled("other_environment").profile
    version = subprocess.run(
        [OTHER_PYTHON, "-c", "import importlib.metadata as m; print(m.version('tensorflow-cpu'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert found.framework.version == version


def test_input_pipelines_and_iterators_are_no_steps_and_not_controlled(profiled):
    found = profiled("tfdata_workers").profile
    assert len(found.steps) == 1
    for name in ("keras_fit", "tfdata_workers"):
        for op in profiled(name).profile.ops:
            assert not (op.times and "Iterator" in op.type)


def test_losses_are_those_of_a_plain_run(plain, tmp_path):
    """Until the climb begins, a profiled job computes what it computes without dltune."""
    measured = tmp_path / "measured"
    job = [PYTHON, JOBS / "gradient_tape.py", "--steps", 30, "--losses", measured]
    done = profile(tmp_path, job, "--keep-running", "--json")
    assert done.code == 0
    assert json.loads(done.stdout) == json.loads(done.output.read_text())
    expected, found = plain()[:30], list(map(float, measured.read_text().split()))
    assert len(found) == 30, "--keep-running lets the job go on to its end"
    assert "trained" in done.stderr
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    assert found[-1] == pytest.approx(expected[-1], rel=0.05)


class TestJobsThatDie:
    """At their next step once dltune climbs, which the pauses between steps make last: longer
    than a busy machine keeps a test from seeing that it has begun."""

    PAUSES = ("--pause", 0.2, "--later", 2)
    JOB = (PYTHON, JOBS / "dies.py", "--steps", 1_000_000, *PAUSES, "--until")

    def test_of_an_exception(self, tmp_path):
        done = profile_of_one_that_dies(tmp_path, [*self.JOB, tmp_path / "enough"])
        assert done.code == 1
        kept = documents.load(done.output)
        assert kept.partial == "the job ended (exit code 1) before the measurement was complete"
        assert "dltune: the last lines of the job:\n  " in done.stderr
        assert "RuntimeError" in done.stderr
        assert kept.steps
        assert kept.steps[0].nodes
        assert "the results are in" in done.said
        assert "this profile is incomplete" in done.stdout

    def test_of_a_crash(self, tmp_path):
        done = profile_of_one_that_dies(tmp_path, [*self.JOB, tmp_path / "enough", "--signal"])
        assert done.code == 128 + signal.SIGSEGV
        assert "the job crashed with SIGSEGV while dltune's plugin was loaded" in done.stderr
        assert "run the job without dltune" in done.said
        assert documents.load(done.output).partial

    def test_within_a_shell_script(self, tmp_path):
        script = f"{shlex.join(map(str, self.JOB))} {tmp_path / 'enough'}; exit 9"
        done = profile_of_one_that_dies(tmp_path, ["sh", "-c", script])
        assert done.code == 9
        assert documents.load(done.output).partial


def without_a_working_compiler(folder: Path) -> dict[str, str]:
    compiler = folder / "c++"
    compiler.write_text(
        "#!/bin/sh\n"
        'case "$1" in --version) echo "a compiler" ;;\n'
        '*) echo "device.cc:1: error: no such thing" >&2; exit 1 ;; esac\n'
    )
    compiler.chmod(0o755)
    return {"CXX": str(compiler), "DLTUNE_CACHE": str(folder / "cache")}


class TestJobsInWhichItCannotWork:
    """One sentence, the right exit code, nothing written, no traceback."""

    @pytest.mark.parametrize(
        ("job", "code", "text"),
        [
            (["xla_job.py"], 2, "XLA compiles the job's step"),
            (["eager_only.py", "--steps", "1000"], 2, "runs its ops eagerly"),
            (["no_tensorflow.py"], 2, "neither imported TensorFlow"),
            (["early_exit.py"], 2, "before dltune could measure enough training steps"),
            (["early_exit.py", "--code", "3"], 3, "the job ended with exit code 3"),
            (["no_such_script.py"], 2, "the job ended with exit code 2"),
        ],
        ids=lambda value: value[0] if isinstance(value, list) else None,
    )
    def test_scripts(self, tmp_path, job, code, text):
        done = profile(tmp_path, [PYTHON, JOBS / job[0], *job[1:]])
        self.refused(done, code, text)
        assert job[0] != "early_exit.py" or "nothing to train" in done.stderr, "its last lines"

    @pytest.mark.parametrize(
        ("job", "text"),
        [
            (["no-such-command"], "command not found: no-such-command"),
            ([JOBS / "gan.py"], "is not executable"),
            ([JOBS], "is a folder"),
            ([], "no command to profile"),
            (["true"], "could not attach to the job"),
        ],
    )
    def test_commands(self, tmp_path, job, text):
        self.refused(profile(tmp_path, job), 2, text)

    def test_a_command_that_fails(self, tmp_path):
        self.refused(profile(tmp_path, ["false"]), 1, "could not attach to the job")

    def test_an_isolated_python(self, tmp_path):
        code = "import tensorflow, time; time.sleep(120)"
        self.refused(profile(tmp_path, [PYTHON, "-I", "-c", code]), 2, "could not attach to pid")

    def test_a_compiler_that_fails(self, tmp_path):
        env = without_a_working_compiler(tmp_path)
        done = profile(tmp_path, JOBS_THAT_WORK["gradient_tape"], **env)
        self.refused(done, 2, "device.cc:1: error: no such thing")
        (log,) = re.findall(r"the whole log: (\S+)", done.stderr)
        assert "error: no such thing" in Path(log).read_text()
        assert "dltune doctor" in done.stderr

    def test_no_compiler(self, tmp_path):
        done = profile(
            tmp_path,
            JOBS_THAT_WORK["gradient_tape"],
            CXX="/bin/false",
            DLTUNE_CACHE=str(tmp_path / "cache"),
        )
        self.refused(done, 2, "the C++ compiler /bin/false cannot be run")

    def test_dltune_is_disabled(self, tmp_path):
        done = profile(tmp_path, JOBS_THAT_WORK["gradient_tape"], DLTUNE_DISABLE="1")
        self.refused(done, 2, "DLTUNE_DISABLE=1 is set")

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            (["--interval", 4096], "exceeds the"),
            (["--steps", 1], "--steps"),
            (["--what"], "--what"),
        ],
    )
    def test_options(self, tmp_path, options, text):
        done = profile(tmp_path, ["true"], *options)
        assert done.code == 2
        assert text in done.stderr
        assert done.wrote_nothing()

    def refused(self, done: Done, code: int, text: str) -> None:
        assert done.code == code, done.stderr
        assert text in done.said
        assert done.wrote_nothing()
        if "no_such_script" not in done.stderr:
            assert "Traceback" not in done.stderr


class TestOutputs:
    def test_one_that_exists_is_left_as_it_is(self, tmp_path):
        output = tmp_path / "out" / "profile.json"
        output.parent.mkdir()
        output.write_text("mine")
        done = profile(tmp_path, JOBS_THAT_WORK["gradient_tape"])
        assert done.code == 2
        assert "exists" in done.said
        assert output.read_text() == "mine"

    def test_one_that_cannot_be_written(self):
        done = subprocess.run(
            command(Path("/proc/none/profile.json"), JOBS_THAT_WORK["gradient_tape"]),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        assert "cannot write /proc/none/profile.json" in done.stderr
        assert "Traceback" not in done.stderr

    def test_one_that_another_dltune_writes(self, tmp_path):
        output = tmp_path / "profile.json"
        with claim(output, overwrite=False):
            done = subprocess.run(
                command(output, JOBS_THAT_WORK["gradient_tape"]), capture_output=True, text=True
            )
        assert done.returncode == 2
        assert "another dltune process is writing" in done.stderr

    @pytest.mark.root
    @pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
    def test_a_full_disk(self, tmp_path):
        small = tmp_path / "out"
        small.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8k", "none", str(small)], capture_output=True
        )
        if mounted.returncode:
            pytest.skip("cannot mount a file system here")
        try:
            done = profile(tmp_path, JOBS_THAT_WORK["gradient_tape"])
            assert done.code == 2
            assert "No space left on device" in done.said
            assert done.wrote_nothing()
        finally:
            subprocess.run(["umount", str(small)], check=True)


class TestEnding:
    """dltune is told to end at each of its phases: what there is is kept, nothing keeps running."""

    JOB = (PYTHON, JOBS / "gradient_tape.py", "--pause")

    @pytest.mark.parametrize(
        ("number", "phase", "kept"),
        [
            (signal.SIGINT, "waiting for", False),
            (signal.SIGTERM, "waiting for the job to import", False),
            (signal.SIGINT, "searching for the training step", False),
            (signal.SIGINT, "trying thread counts", True),
            (signal.SIGTERM, "trying thread counts", True),
        ],
    )
    def test_at(self, tmp_path, number, phase, kept):
        output, mark = tmp_path / "profile.json", str(uuid.uuid4())
        # however late the signal is: the climb goes on, or no second step has come
        pauses = (0.2, "--later", 2) if kept else (600,)
        running = start(output, mark, phase, (*self.JOB, *pauses))
        running.send_signal(number)
        running.communicate(timeout=240)
        said = (tmp_path / "said").read_text()
        assert running.returncode == 128 + number
        assert f"ended by {signal.Signals(number).name}" in said
        assert "Traceback" not in said
        assert not remaining(with_mark, mark)
        assert not list(tmp_path.glob(".*"))
        if kept:
            assert documents.load(output).partial == "interrupted"
        else:
            assert not output.exists()
        assert ("(incomplete)" if kept else "there are no results yet") in said

    def test_by_a_kill_the_job_goes_on_to_its_end(self, tmp_path):
        losses, enough, mark = tmp_path / "losses", tmp_path / "enough", str(uuid.uuid4())
        job = (*self.JOB, 0.2, "--later", 1, "--losses", losses, "--until", enough)
        running = start(tmp_path / "profile.json", mark, "trying thread counts", job, "--verbose")
        running.kill()
        running.wait(timeout=240)
        before = len(losses.read_text().split())
        until = time.monotonic() + 240
        while len(losses.read_text().split()) < before + 5:
            assert time.monotonic() < until
            time.sleep(0.2)
        enough.touch()
        until = time.monotonic() + 240
        while with_mark(mark):
            assert time.monotonic() < until
            time.sleep(0.2)
        assert "trained" in (tmp_path / "said").read_text()


def test_a_profile_can_be_planned(profiled, tmp_path):
    if not shutil.which("g++") and not os.environ.get("CXX"):
        pytest.skip("the simulator needs a compiler")
    profiled("keras_fit")
    done = subprocess.run(
        [PYTHON, "-m", "dltune", "plan", str(profiled("keras_fit").output), "-o", "plan.json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
