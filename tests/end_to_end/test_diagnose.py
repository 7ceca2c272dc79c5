"""`dltune diagnose` on real jobs: what it finds in them, and what it plans."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dltune.plan.plan import load_plan
from dltune.schemas import diagnosis as documents
from dltune.schemas.settings import Choice, SettingsPlan

pytestmark = pytest.mark.tensorflow

RETRACES = """
import time

import tensorflow as tf

weight = tf.Variable(tf.ones((64, 64)))
data = tf.ones((64, 64))


@tf.function
def train_step(number):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.matmul(data, weight) / (1.0 + number))
    weight.assign_sub(1e-6 * tape.gradient(loss, weight))
    return loss


until = time.monotonic() + 550
number = 0
while time.monotonic() < until:
    number += 1
    train_step(number)
"""

FITS = """
import time

import keras
import numpy as np

model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.zeros((512, 8), "f")
until = time.monotonic() + 26
rows = []
while time.monotonic() < until:  # it prepares, for longer than a job without a step is waited for
    rows = sorted(range(1000))
until = time.monotonic() + 550
while time.monotonic() < until:
    model.fit(x, x[:, :1], batch_size=2, epochs=50, verbose=0)
"""


def diagnosed(script: str, folder: Path, *more: object) -> documents.Diagnosis:
    job, kept = folder / "job.py", folder / "diagnosis.json"
    job.write_text(script)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "dltune", "diagnose", "-o", str(kept), *map(str, more)),
            *("--", sys.executable, str(job)),
        ],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return documents.load(kept)


def test_a_job_without_a_step_is_told_what_it_does(tmp_path):
    found = diagnosed(RETRACES, tmp_path, "--budget", "40s")
    assert not found.healthy
    assert found.no_step is not None
    assert "graph" in found.no_step
    retracing = next(one for one in found.findings if one.cause == "retracing")
    assert "job.py:22 (<module>)" in retracing.evidence
    assert retracing.share is not None
    assert retracing.share > 0.3


def test_a_plan_is_the_next_step(tmp_path):
    plan = tmp_path / "plan.json"
    found = diagnosed(FITS, tmp_path, "--budget", "75s", "--plan", plan)
    causes = [one.cause for one in found.findings]
    assert "tiny-steps" in causes
    assert "between-steps" not in causes
    assert found.observation is not None
    assert found.observation.python is not None
    shares = {one.activity: one.share for one in found.observation.python.shares}
    assert shares.get("fit", 0.0) > shares.get("python", 0.0)
    assert found.step is not None
    section = load_plan(plan).of(SettingsPlan)
    assert section is not None
    assert Choice("steps_per_execution", "64") in section.chosen
