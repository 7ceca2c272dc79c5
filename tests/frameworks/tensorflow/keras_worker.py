"""A process with TensorFlow and the settings' hooks, which runs what a test sends it.

Read from stdin: a pickled (code, arguments); written to where stdout was: (result, error), the
code's variable `result` or the traceback. Among the code's names: `plain()` and `fused()`, contexts
in which Keras' layer is its own or the hook's, `told`, and the imports below.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import traceback
from collections.abc import Iterator

import numpy as np

answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
sys.path[:0] = sys.argv[1:]

import _dltune_batch_norm  # noqa: E402
import _dltune_report  # noqa: E402
import keras  # noqa: E402
import tensorflow as tf  # noqa: E402
from keras.src.layers.normalization import batch_normalization  # noqa: E402

told: list[dict] = []
layer = keras.layers.BatchNormalization
own = layer.call


def hooked() -> object:
    """The hook's `call`, of a hook that has done nothing yet."""
    told.clear()
    layer.call = own
    report = _dltune_report.Report("batch_norm", "fused", told.append)
    for module, hook in _dltune_batch_norm.batch_norm(report):
        if module == batch_normalization.__name__:
            report.harmless(hook, module)(batch_normalization)
    return layer.call


@contextlib.contextmanager
def calls(call: object) -> Iterator[None]:
    before, layer.call = layer.call, call
    yield
    layer.call = before


while True:
    try:
        code, arguments = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    ours = hooked()
    here = {
        "plain": lambda: calls(own),
        "fused": lambda ours=ours: calls(ours),
        "told": told,
        "keras": keras,
        "tf": tf,
        "np": np,
        **arguments,
    }
    try:
        exec(code, here)
        answer = (here.get("result"), None)
    except Exception:
        answer = (None, traceback.format_exc())
    pickle.dump(answer, answers)
    answers.flush()
