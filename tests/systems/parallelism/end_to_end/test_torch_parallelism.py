"""Jobs on PyTorch under a plan on parallelism: one process for each device, as losses on one."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jaxes
import parallel_plans
import pytest
from tensorflows import ROOT
from torches import TORCH_PYTHON, needs_torch

from dltune.job import ranks
from dltune.systems.parallelism.emit import torch_file
from dltune.systems.parallelism.schemas.strategy import Parallelism

pytestmark = [needs_torch]
JOB = ROOT / "tests" / "jobs" / "torch_fit.py"
Done = subprocess.CompletedProcess[str]
# of torch_fit.py attention: by samples and channels, by length, and by what each learns
LAYERS = parallel_plans.attention((0, 2), (0, 2), (2, 0), (0, 1), (None, 0), (None, 1), mesh=(2, 2))


def started(*command: object, **env: str) -> Done:
    return subprocess.run(
        [*map(str, command)],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
        env={**os.environ, **env},
    )


def run(folder: Path, part: Parallelism, *job: object, options: tuple = ()) -> Done:
    """The job under `dltune run`."""
    plan = parallel_plans.saved(folder, part)
    arguments = ["run", "--plan", plan, *options, "--", TORCH_PYTHON, *job]
    return started(sys.executable, "-m", "dltune", *arguments)


def told(done: Done) -> dict:
    """What the job printed last."""
    assert done.returncode == 0, done.stderr
    found = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(found[-1])


def said(done: Done) -> str:
    """What dltune said, and nothing of Python's."""
    assert "Traceback" not in done.stderr.partition("dltune: ")[2]
    return done.stderr[done.stderr.index("dltune: ") :]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[dict, Path]]:
    """What a kind of torch_fit.py has come to on one device, and where it has saved that."""

    @functools.cache
    def of(kind: str) -> tuple[dict, Path]:
        folder = tmp_path_factory.mktemp(kind)
        return told(started(TORCH_PYTHON, JOB, kind, folder, "saves")), folder

    return of


def require_alike(together: dict, by_itself: dict) -> None:
    for figure in ("losses", "norms", "weights"):
        assert together[figure] == pytest.approx(by_itself[figure], abs=1e-5)
    for one, other in zip(together["predicted"], by_itself["predicted"], strict=True):
        assert one == pytest.approx(other, abs=1e-5)


@pytest.mark.parametrize(
    ("kind", "part", "divided"),
    [
        ("conv", parallel_plans.conv(0), "2 of 8 weights and the outputs of 5 operators"),
        ("conv", parallel_plans.conv(3), "6 of 8 weights and the outputs of 5 operators"),
        (
            "attention",
            LAYERS,
            "7 of 13 weights and the outputs of 6 operators",
        ),
    ],
)
def test_losses_are_those_of_one_device(
    tmp_path: Path,
    alone: Callable[[str], tuple[dict, Path]],
    kind: str,
    part: Parallelism,
    divided: str,
) -> None:
    """By samples, channels, and both; dropout, noise, batch norm over all samples, an LSTM,
    clipped gradients."""
    outcome = tmp_path / "outcome.json"
    done = run(tmp_path, part, JOB, kind, tmp_path, options=("--json", outcome))
    require_alike(told(done), alone(kind)[0])
    assert f"{divided} divided as planned" in said(done)
    document = json.loads(outcome.read_text())["sections"]["parallelism"]
    assert document["consumer"] == "torch"
    assert document["framework"].startswith("PyTorch ")
    assert document["unknown"] == []


def test_what_scripts_do_around_a_model(tmp_path: Path) -> None:
    """Averages and penalties of weights, held in all ways; losses within the model; copies."""
    words = ("sample", "length", "channel")
    part = parallel_plans.section(
        (2,),
        *(
            parallel_plans.operator(name, type, words, (2,), axes)
            for name, type, axes in (
                ("first", "dense bias", (2,)),
                ("block/self_attn", "MultiheadAttention", (0,)),
                ("block/linear1", "dense bias", (2,)),
                ("block/linear2", "dense bias", (0,)),
                ("block/norm1", "layer_norm", (0,)),
                ("block/norm2", "layer_norm", (0,)),
            )
        ),
        parallel_plans.operator("last", "dense bias", parallel_plans.VECTOR, (2,), (1,)),
    )
    job = JOB.with_name("torch_habits.py")
    by_itself = told(started(TORCH_PYTHON, job))
    done = run(tmp_path, part, job)
    together = told(done)
    assert together.keys() == by_itself.keys()
    for figure, expected in by_itself.items():
        assert together[figure] == pytest.approx(expected, abs=1e-3), figure
    assert together["losses"] == pytest.approx(by_itself["losses"], abs=1e-5)
    assert "6 of 17 weights and the outputs of 7 operators divided as planned" in said(done)
    assert "belong to no operator of the plan: scale" in said(done)


def test_what_is_saved_is_whole_and_goes_on_divided(
    tmp_path: Path, alone: Callable[[str], tuple[dict, Path]]
) -> None:
    """On one device and on two, whichever saved it."""
    part = parallel_plans.attention((2,), (2,), (0,), (1,), (0,), (1,))
    told(run(tmp_path, part, JOB, "attention", tmp_path, "saves"))
    further = told(started(TORCH_PYTHON, JOB, "attention", tmp_path, "again"))
    require_alike(told(run(tmp_path, part, JOB, "attention", tmp_path, "again")), further)
    _, folder = alone("attention")
    require_alike(told(started(TORCH_PYTHON, JOB, "attention", folder, "again")), further)


@jaxes.needs_jax
@pytest.mark.jax
def test_one_plan_is_for_keras_and_for_pytorch(tmp_path: Path) -> None:
    """Whose losses are the same from the same weights, as far as both round alike."""
    kind, plan = "conv", parallel_plans.saved(tmp_path, parallel_plans.conv(3))
    under = [sys.executable, "-m", "dltune", "run", "--plan", plan, "--"]
    job = JOB.with_name("jax_fit.py")
    keras = started(*under, jaxes.PYTHON, job, kind, tmp_path, KERAS_BACKEND="jax")
    assert keras.returncode == 0, keras.stderr
    of_keras = json.loads(keras.stdout.splitlines()[-1])
    torch = told(started(*under, TORCH_PYTHON, JOB, kind, tmp_path, "keras"))
    sizes = (8, 8, 5)
    epochs = torch["losses"][:3], torch["losses"][3:]
    means = [sum(n * one for n, one in zip(sizes, losses, strict=True)) / 21 for losses in epochs]
    assert means == pytest.approx(of_keras["fit"], abs=1e-4)


def test_a_job_takes_the_emitted_file(
    tmp_path: Path, alone: Callable[[str], tuple[dict, Path]]
) -> None:
    """In processes that it has started itself."""
    (tmp_path / "dltune_plan.py").write_text(torch_file(parallel_plans.conv(3)))
    job = tmp_path / "job.py"
    job.write_text(
        "import os, sys\n"
        "import torch\n"
        "rank, ranks = (int(os.environ[n]) for n in ('DLTUNE_RANK', 'DLTUNE_RANKS'))\n"
        "os.environ.setdefault('GLOO_SOCKET_IFNAME', 'lo')\n"
        "address = f'tcp://{sys.argv.pop(1)}'\n"
        "torch.distributed.init_process_group('gloo', address, rank=rank, world_size=ranks)\n"
        "import dltune_plan\n"
        "dltune_plan.distribute()\n" + JOB.read_text().partition("annotations\n")[2]
    )
    command = [TORCH_PYTHON, job, ranks.free_address(), "conv", tmp_path]
    both = ranks.started(range(2), 2, [*map(str, command)])
    require_alike(told(started(*both, **{ranks.FOLDER: str(tmp_path)})), alone("conv")[0])
    one = started(
        *ranks.started(range(1), 1, [*map(str, command)]), **{ranks.FOLDER: str(tmp_path)}
    )
    assert one.returncode == 2
    assert "the plan requires 2 processes, one per device; the job has 1" in one.stderr


class TestErrors:
    def test_a_weight_that_is_not_in_the_plan(
        self, tmp_path: Path, alone: Callable[[str], tuple[dict, Path]]
    ) -> None:
        part = parallel_plans.attention((2,), (2,), (0,), (1,), (0,), (1,))
        less = parallel_plans.section(part.mesh, *part.operators[:3])
        done = run(tmp_path, less, JOB, "attention", tmp_path)
        assert done.returncode == 2
        fault = "the weight 'norm/weight' belongs to no operator of the plan, nor do 7 more"
        assert fault in said(done)
        kept = run(tmp_path, less, JOB, "attention", tmp_path, options=("--partial",))
        require_alike(told(kept), alone("attention")[0])
        assert "no operator of the plan: cells/bias_hh_l0, cells/bias_ih_l0" in said(kept)

    def test_a_plan_for_another_network(self, tmp_path: Path) -> None:
        done = run(tmp_path, parallel_plans.conv(), JOB, "dense", tmp_path)
        assert done.returncode == 2
        assert "do not have: 'sequential/conv2d' and 1 more" in said(done)

    def test_what_pytorch_cannot_divide(self, tmp_path: Path) -> None:
        done = run(tmp_path, parallel_plans.conv(1), JOB, "conv", tmp_path)
        assert done.returncode == 2
        assert "the plan divides 'conv2d' by height or width, which PyTorch does not" in said(done)
        divided = parallel_plans.attention(*[(None,)] * 3, (2,), *[(None,)] * 2)
        done = run(tmp_path, divided, JOB, "attention", tmp_path)
        assert done.returncode == 2
        assert "the weights of 'norm', but PyTorch cannot divide those of a LayerNorm" in said(done)

    @pytest.mark.parametrize("draws", ["data", "weights"])
    def test_ranks_that_draw_differently(self, tmp_path: Path, draws: str) -> None:
        drawn = "different" if draws == "data" else "other-weights"
        done = run(tmp_path, parallel_plans.dense(), JOB, "dense", tmp_path, drawn)
        assert done.returncode == 2
        fault = "read different batches" if draws == "data" else "initialise different weights"
        assert f"the ranks {fault}" in said(done)

    def test_a_rank_that_fails_ends_the_others(self, tmp_path: Path) -> None:
        """After an epoch: without a seed of the script's all draw alike."""
        done = run(tmp_path, parallel_plans.dense(), JOB, "dense", tmp_path, "dies", "unseeded")
        assert done.returncode == 1
        assert "dltune: the job ended with exit code 1: rank 1 ended" in done.stderr
        assert "rank one has had enough" in done.stderr

    def test_a_job_that_starts_ranks_itself(self, tmp_path: Path) -> None:
        code = (
            "import torch\n"
            "torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(), "
            "rank=0, world_size=1)\n"
            "torch.nn.Linear(2, 2)(torch.ones(2, 2))"
        )
        done = run(tmp_path, parallel_plans.dense(), "-c", code)
        assert done.returncode == 2
        assert "the job already starts ranks with torch.distributed" in said(done)
