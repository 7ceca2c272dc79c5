"""What a thread is at, by its stack."""

from __future__ import annotations

import pytest

from dltune.system.proc.process import Frame
from dltune.watch.stack_samples import Stack, activity, python_activity

TF = "/env/lib/python3.11/site-packages/tensorflow/python"
TORCH = "/env/lib/python3.11/site-packages/torch"
KERAS = "/env/lib/python3.11/site-packages/keras/src"
STANDARD = "/usr/lib/python3.11"
GET = Frame("Queue.get", f"{STANDARD}/queue.py", 171)
OWN = Frame("<module>", "/home/me/train.py", 30)
RUNS = (
    Frame("quick_execute", f"{TF}/eager/execute.py", 53),
    Frame("Function.__call__", f"{TF}/eager/polymorphic_function/polymorphic_function.py", 833),
)


@pytest.mark.parametrize(
    ("expected", "frames"),
    [
        ("step", RUNS),
        (
            "tracing",
            (
                Frame("matmul", f"{TF}/ops/math_ops.py", 1),
                Frame("func_graph_from_py_func", f"{TF}/framework/func_graph.py", 1060),
                *RUNS[1:],
            ),
        ),
        ("input", (Frame("OwnedIterator._next_internal", f"{TF}/data/ops/iterator_ops.py", 773),)),
        ("queue", (Frame("Condition.wait", f"{STANDARD}/threading.py", 1), GET, OWN)),
        ("queue", (Frame("Connection._recv", f"{STANDARD}/multiprocessing/connection.py", 1), OWN)),
        ("input", (GET, Frame("get_next", f"{TF}/data/ops/iterator_ops.py", 773))),
        (
            "input",
            (
                GET,
                Frame(
                    "_MultiProcessingDataLoaderIter._next_data",
                    f"{TORCH}/utils/data/dataloader.py",
                    1,
                ),
            ),
        ),
        (
            "input",
            (
                Frame("Rows.__getitem__", "/home/me/rows.py", 9),
                Frame("_MapDatasetFetcher.fetch", f"{TORCH}/utils/data/_utils/fetch.py", 52),
                Frame("_BaseDataLoaderIter.__next__", f"{TORCH}/utils/data/dataloader.py", 701),
                OWN,
            ),
        ),
        ("saving", (Frame("_save", f"{TORCH}/serialization.py", 1), OWN)),
        ("validation", (Frame("linear", f"{TORCH}/nn/functional.py", 1), Frame("test", "a.py", 4))),
        ("validation", (Frame("eval_epoch", "/home/me/train.py", 4), OWN)),
        ("tracing", (Frame("_compile", f"{TORCH}/_dynamo/convert_frame.py", 1), OWN)),
        ("reading", (Frame("_EagerTensorBase.numpy", f"{TF}/framework/ops.py", 416),)),
        ("eager", (Frame("norm", f"{TF}/ops/linalg_ops.py", 1),)),
        ("saving", (*RUNS[:1], Frame("save", f"{TF}/training/saver.py", 5))),
        (
            "saving",
            (Frame("ModelCheckpoint._save_model", f"{KERAS}/callbacks/model_checkpoint.py", 3),),
        ),
        (
            "validation",
            (*RUNS, Frame("Trainer.evaluate", f"{KERAS}/backend/tensorflow/trainer.py", 9)),
        ),
        ("validation", (*RUNS, Frame("validate", "/home/me/train.py", 9))),
        ("fit", (Frame("Trainer.fit", f"{KERAS}/backend/tensorflow/trainer.py", 399),)),
        (
            "call",
            (Frame("constant", f"{TF}/framework/constant_op.py", 1), RUNS[1]),
        ),
        (
            "fit",
            (RUNS[1], Frame("Trainer.fit", f"{KERAS}/backend/tensorflow/trainer.py", 399)),
        ),
        # a callback of the job's own, and functions that only sound like validation
        (
            "python",
            (
                Frame("Mine.on_train_batch_end", "/home/me/train.py", 9),
                Frame("Trainer.fit", f"{KERAS}/backend/tensorflow/trainer.py", 399),
            ),
        ),
        ("step", (*RUNS, Frame("Policy.evaluate_actions", "/home/me/ppo.py", 9))),
        ("python", (Frame("validate_inputs", "/home/me/data.py", 9),)),
        ("python", ()),
    ],
)
def test_an_activity(expected, frames):
    assert activity((*frames, OWN)) == expected


def test_shares_of_looks_at_the_main_thread():
    generator = (
        Frame("rows", "/home/me/data.py", 8),
        Frame("generator_py_func", f"{TF}/data/ops/from_generator_op.py", 3),
    )
    found = python_activity(
        7, [Stack(7, (*RUNS, OWN), 6), Stack(7, (OWN,), 4), Stack(9, generator, 5)]
    )
    assert found is not None
    assert [(one.activity, one.share) for one in found.shares] == [("step", 0.6), ("python", 0.4)]
    assert found.shares[1].lines[0].where == "train.py:30 (<module>)"
    assert found.generator == 0.5
    assert found.generator_lines[0].where == "data.py:8 (rows)"


def test_no_looks_are_no_shares():
    assert python_activity(7, []) is None
