"""Scripts that use batch normalization in their own ways, plain and with the fused kernel."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from hooked import JOBS, told
from tensorflows import OTHER_PYTHON, needs_other

pytestmark = pytest.mark.tensorflow

STEPS = 6


def losses(tmp_path: Path, name: str, settings: dict[str, str], **where: str):
    file = tmp_path / f"losses{len(list(tmp_path.iterdir()))}"
    script = JOBS / f"norm_{name}.py"
    heard = told(script, settings, "--steps", STEPS, "--losses", file, **where)
    return [float(line) for line in file.read_text().splitlines()], heard


@pytest.mark.parametrize(
    ("name", "layers", "left"),
    [
        ("subclassed", 3, ""),
        pytest.param("synchronized", 2, "", marks=pytest.mark.proof),
        pytest.param("axis_1", 2, "", marks=pytest.mark.proof),
        ("frozen", 1, "body, late: it is frozen and uses its moving statistics"),
        pytest.param(
            "keras_2",
            0,
            "tf_keras: already uses the fused kernel",
            marks=[
                pytest.mark.proof,
                pytest.mark.skipif(
                    importlib.util.find_spec("tf_keras") is None, reason="tf_keras is not installed"
                ),
            ],
        ),
    ],
)
def test_losses_stay_as_near_as_with_another_number_of_threads(name, layers, left, tmp_path):
    compared(tmp_path, name, layers, left)


@needs_other
@pytest.mark.parametrize(
    ("name", "layers"), [("subclassed", 3), pytest.param("axis_1", 2, marks=pytest.mark.proof)]
)
def test_so_they_do_under_an_older_tensorflow(name, layers, tmp_path):
    compared(tmp_path, name, layers, python=str(OTHER_PYTHON))


def compared(tmp_path: Path, name: str, layers: int, left: str = "", **where: str) -> None:
    plain, _ = losses(tmp_path, name, {}, **where)
    fused, heard = losses(tmp_path, name, {"batch_norm": "fused"}, **where)
    one_thread, _ = losses(tmp_path, name, {}, TF_NUM_INTRAOP_THREADS="1", **where)
    assert heard["batch_norm"].count == layers
    assert heard["batch_norm"].left == ([left] if left else [])
    assert len(plain) == len(fused) >= STEPS
    for step, (loss, other, threads) in enumerate(zip(plain, fused, one_thread, strict=True)):
        # what is off by one rounding grows from step to step
        rounding = max(10 * abs(threads - loss), 1e-6 * (1 + step) * abs(loss))
        assert abs(other - loss) <= rounding, (step, loss, other, threads)
