"""Settings of Keras and tf.data from outside: only what a script left open, and all of it told."""

from __future__ import annotations

import json

import pytest
from hooked import JOBS, told
from tensorflows import PYTHONS, THIS_AND_PROOF

pytestmark = pytest.mark.tensorflow

SCRIPT = JOBS / "open_settings.py"


@pytest.mark.parametrize("python", PYTHONS)
def test_steps_at_a_time_and_input(python, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert told(SCRIPT, {}, python=python) == {}
    plain = json.loads((tmp_path / "found.json").read_text())
    heard = told(
        SCRIPT,
        {
            "steps_per_execution": "4",
            "input_threads": "3",
            "input_prefetch": "auto",
            "input_order": "any",
        },
        python=python,
    )
    found = json.loads((tmp_path / "found.json").read_text())
    # free's last fit is of 6 steps, of which 4 at a time would make 8; several has 6, and 4 that
    # validate it; short has 5, of which 3 and 4 would be no more than one execution
    assert found["steps"] == {
        "free": 3,
        "set": 2,
        "watched": 1,
        "eager": 1,
        "prime": 1,
        "short": 2,
        "several": 2,
        "jit": 4,
    }
    assert found["traced"] == [True] * 3  # once for all epochs
    assert (found["iterations"], found["uneven"], found["batches"]) == (20, 6, 10)
    assert found["saved"] == plain["saved"]
    assert found["weights"] == plain["weights"]

    steps = heard["steps_per_execution"]
    assert (steps.count, steps.steps) == (4, 2)
    assert sorted(steps.left) == [
        "eager: the script runs it eagerly",
        "prime: steps_per_epoch=7 has no divisor from 2 to 4",
        "set: the script sets steps_per_execution itself",
        "watched: the callback CountBatches is called for each batch",
    ]
    threads = heard["input_threads"]
    assert threads.count > 0
    assert threads.did == f"set a private pool of 3 threads in {threads.count} datasets"
    assert any("sets private_threadpool_size itself" in left for left in threads.left)
    assert heard["input_prefetch"].count > 0
    assert any("already ends with prefetch()" in left for left in heard["input_prefetch"].left)
    assert heard["input_order"].count > 0
    assert any("sets deterministic itself" in left for left in heard["input_order"].left)


@pytest.mark.parametrize("python", THIS_AND_PROOF)
def test_xla_and_precision(python, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"jit_compile": "on", "precision": "mixed_bfloat16"}
    heard = told(SCRIPT, settings, python=python)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["xla"] == {"free": True, "set": True, "eager": False, "jit": False}
    assert found["policy"] == "mixed_bfloat16"
    assert not found["saved"]["jit_compile"]
    assert heard["jit_compile"].count == 6
    assert sorted(heard["jit_compile"].left) == [
        "eager: the script runs it eagerly",
        "jit: the script sets jit_compile itself",
    ]
    assert (heard["precision"].count, heard["precision"].left) == (1, [])


def test_a_policy_of_the_script_stays(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import keras\n"
        "keras.mixed_precision.set_global_policy('float64')\n"
        "assert keras.layers.Dense(1).dtype_policy.name == 'float64'\n"
    )
    (heard,) = told(script, {"precision": "mixed_bfloat16"}).values()
    assert (heard.count, heard.left) == (0, ["Keras: the script sets a dtype policy itself"])


def test_a_job_without_any_of_it_says_so(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import tensorflow as tf\ntf.Variable(1.0).assign_add(1.0)\n")
    heard = told(script, {"batch_norm": "fused", "input_order": "any", "jit_compile": "on"})
    assert {name: message.count for name, message in heard.items()} == {
        "batch_norm": 0,
        "input_order": 0,
        "jit_compile": 0,
    }
