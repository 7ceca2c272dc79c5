"""Jobs on JAX under a plan on parallelism: one process for each device, as losses on one."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jaxes
import parallel_plans
import pytest
from tensorflows import ROOT

from dltune.job import ranks
from dltune.systems.parallelism.emit import jax_file, keras_file
from dltune.systems.parallelism.schemas.strategy import Parallelism

pytestmark = [jaxes.needs_jax, pytest.mark.jax]
JOBS = ROOT / "tests" / "jobs"
Done = subprocess.CompletedProcess[str]


def python(*job: object, **env: str) -> Done:
    """The job by itself."""
    return subprocess.run(
        [jaxes.PYTHON, *map(str, job)],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
        env={**os.environ, "KERAS_BACKEND": "jax", **env},
    )


def run(folder: Path, part: Parallelism, *job: object, options: tuple = (), **env: str) -> Done:
    """The job under `dltune run`."""
    plan = parallel_plans.saved(folder, part)
    arguments = ["run", "--plan", plan, *options, "--", jaxes.PYTHON, *job]
    return subprocess.run(
        [sys.executable, "-m", "dltune", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
        env={**os.environ, "KERAS_BACKEND": "jax", **env},
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict]:
    """What a kind of jax_fit.py has come to on one device; each is run once."""

    @functools.cache
    def of(kind: str) -> dict:
        folder = tmp_path_factory.mktemp(kind)
        found = told(python(JOBS / "jax_fit.py", kind, folder, "saves"))
        assert isinstance(found, dict)
        return found

    return of


def told(done: Done) -> dict | list:
    """What the job printed last."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def said(done: Done) -> str:
    """What dltune said, and nothing of Python's."""
    assert "Traceback" not in done.stderr.partition("dltune: ")[2]
    return done.stderr[done.stderr.index("dltune: ") :]


@pytest.mark.parametrize(
    ("kind", "part", "divided"),
    [
        ("dense", parallel_plans.dense(), "2 of 4 weights and the outputs of 2 operators"),
        ("conv", parallel_plans.conv(1), "2 of 10 weights and the outputs of 5 operators"),
    ],
)
def test_keras_has_the_losses_of_one_device(
    tmp_path: Path, alone: Callable[[str], dict], kind: str, part: Parallelism, divided: str
) -> None:
    outcome = tmp_path / "outcome.json"
    options = ("--json", outcome)
    done = run(tmp_path, part, JOBS / "jax_fit.py", kind, tmp_path, options=options)
    together = told(done)
    for figure in ("fit", "evaluate"):
        assert together[figure] == pytest.approx(alone(kind)[figure], abs=1e-5)
    assert f"{divided} divided as planned" in said(done)
    document = json.loads(outcome.read_text())["sections"]["parallelism"]
    assert (document["ranks"], document["consumer"], document["divided"]) == (2, "keras", 2)


def test_what_keras_saves_and_predicts_is_whole(
    tmp_path: Path, alone: Callable[[str], dict]
) -> None:
    part = parallel_plans.dense()
    together = told(run(tmp_path, part, JOBS / "jax_fit.py", "dense", tmp_path, "saves"))
    assert sum(together["weights"]) == pytest.approx(sum(alone("dense")["weights"]), abs=1e-4)
    for figure in ("predict", "again"):
        for one, other in zip(together[figure], alone("dense")[figure], strict=True):
            assert one == pytest.approx(other, abs=1e-4)
    code = (
        "import keras, sys, json\n"
        "m = keras.models.load_model(sys.argv[1])\n"
        "print(json.dumps([float(w.sum()) for w in m.get_weights()]))"
    )
    assert told(python("-c", code, tmp_path / "model.keras")) == pytest.approx(together["weights"])


def test_plain_jax_takes_the_emitted_file(tmp_path: Path) -> None:
    job = tmp_path / "jax_plain.py"
    shutil.copy(JOBS / "jax_plain.py", job)
    by_itself = told(python(job))
    part = parallel_plans.conv()
    (tmp_path / "dltune_plan.py").write_text(jax_file(part))
    done = run(tmp_path, part, job)
    assert told(done) == pytest.approx(by_itself, abs=1e-5)
    assert "divided by the emitted file" in said(done)
    fewer = python(job)
    assert fewer.returncode == 2
    assert fewer.stderr.startswith("the plan requires 2 devices, one per process; the job has 1")
    other = run(tmp_path, parallel_plans.conv(None), job)
    assert other.returncode == 2
    assert "did not import the file that divides its arrays" in said(other)


def test_keras_takes_the_emitted_file(tmp_path: Path, alone: Callable[[str], dict]) -> None:
    """In processes that the job has started itself."""
    (tmp_path / "dltune_plan.py").write_text(keras_file(parallel_plans.dense()))
    job = tmp_path / "job.py"
    job.write_text(
        "import os, sys\n"
        "import jax\n"
        "jax.config.update('jax_cpu_collectives_implementation', 'gloo')\n"
        "rank, ranks = (int(os.environ[n]) for n in ('DLTUNE_RANK', 'DLTUNE_RANKS'))\n"
        "jax.distributed.initialize(sys.argv.pop(1), ranks, rank)\n"
        "import keras, dltune_plan\n"
        "keras.utils.set_random_seed(0)\n"
        "dltune_plan.distribute()\n" + (JOBS / "jax_fit.py").read_text().partition("annotations")[2]
    )
    done = subprocess.run(
        ranks.started(
            range(2), 2, [jaxes.PYTHON, str(job), ranks.free_address(), "dense", str(tmp_path)]
        ),
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
        env={**os.environ, "KERAS_BACKEND": "jax", ranks.FOLDER: str(tmp_path)},
    )
    assert told(done)["fit"] == pytest.approx(alone("dense")["fit"], abs=1e-5)


class TestErrors:
    def test_a_weight_that_is_not_in_the_plan(self, tmp_path: Path) -> None:
        part = parallel_plans.dense()
        less = parallel_plans.section(part.mesh, part.operators[0])
        done = run(tmp_path, less, JOBS / "jax_fit.py", "dense", tmp_path)
        assert done.returncode == 2
        assert "the weight 'sequential/dense_1/kernel' belongs to no operator" in said(done)
        kept = run(tmp_path, less, JOBS / "jax_fit.py", "dense", tmp_path, options=("--partial",))
        assert kept.returncode == 0
        assert "belong to no operator of the plan: sequential/dense_1/bias" in said(kept)

    def test_a_weight_that_is_in_the_plan_twice(self, tmp_path: Path) -> None:
        vector, mesh = parallel_plans.VECTOR, (2,)
        part = parallel_plans.section(
            mesh,
            parallel_plans.operator("a/dense", "dense", vector, mesh, (0,)),
            parallel_plans.operator("b/dense", "dense", vector, mesh, (0,)),
        )
        code = (
            "import keras; layers = keras.layers\n"
            "i = layers.Input((4,)); m = keras.Model(i, layers.Dense(2)(i))"
        )
        done = run(tmp_path, part, "-c", code)
        assert done.returncode == 2
        assert "the weight 'dense/kernel' belongs to several operators of the plan" in said(done)

    def test_a_plan_for_another_network(self, tmp_path: Path) -> None:
        done = run(tmp_path, parallel_plans.conv(), JOBS / "jax_fit.py", "dense", tmp_path)
        assert done.returncode == 2
        assert "do not have: 'sequential/conv2d' and 1 more" in said(done)

    def test_more_devices_than_planned(self, tmp_path: Path) -> None:
        flags = "--xla_force_host_platform_device_count=2"
        part = parallel_plans.dense()
        done = run(tmp_path, part, JOBS / "jax_fit.py", "dense", tmp_path, XLA_FLAGS=flags)
        assert done.returncode == 2
        assert "the plan requires 2 devices, one per process; the job has 4" in said(done)

    def test_ranks_that_read_different_data(self, tmp_path: Path) -> None:
        part = parallel_plans.dense()
        done = run(tmp_path, part, JOBS / "jax_fit.py", "dense", tmp_path, "different")
        assert done.returncode == 2
        assert "the ranks read different batches" in said(done)

    def test_a_job_without_jax(self, tmp_path: Path) -> None:
        done = run(tmp_path, parallel_plans.dense(), "-c", "print(1)")
        assert done.returncode == 2
        assert "no process of the job imported JAX" in said(done)

    def test_no_jax_installed(self, tmp_path: Path) -> None:
        code = "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
        done = run(tmp_path, parallel_plans.dense(), "-c", f"{code}import jax")
        assert done.returncode == 2
        assert "which the job's Python cannot import: No module named 'jax'" in said(done)

    def test_keras_on_something_else(self, tmp_path: Path) -> None:
        job = (JOBS / "jax_fit.py", "dense", tmp_path)
        done = run(tmp_path, parallel_plans.dense(), *job, KERAS_BACKEND="numpy")
        assert done.returncode == 2
        assert "Keras uses the backend 'numpy', but the plan requires JAX" in said(done)

    def test_a_rank_that_fails_ends_the_others(self, tmp_path: Path) -> None:
        part = parallel_plans.dense()
        done = run(tmp_path, part, JOBS / "jax_fit.py", "dense", tmp_path, "dies")
        assert done.returncode == 1
        assert "rank 1 ended with exit code 1; the last lines of rank 1:" in done.stderr
        assert "rank one has had enough" in done.stderr

    def test_gradients_that_xla_gets_wrong(self, tmp_path: Path) -> None:
        part = parallel_plans.section(
            (2, 2),
            parallel_plans.operator("c", "conv 3x3/1", parallel_plans.IMAGE, (2, 2), (1, None)),
        )
        done = run(tmp_path, part, "-c", "import keras")
        assert "checking the gradients of convolutions" in said(done)
        if done.returncode == 2 and "no weights" not in done.stderr:
            assert "have wrong gradients" in said(done)


def test_disabled_it_is_one_plain_process(tmp_path: Path) -> None:
    code = "import os; print(os.environ.get('DLTUNE_RANKS'))"
    done = run(tmp_path, parallel_plans.dense(), "-c", code, DLTUNE_DISABLE="1")
    assert (done.returncode, done.stdout) == (0, "None\n")
    assert "one process, without the plan" in said(done)
