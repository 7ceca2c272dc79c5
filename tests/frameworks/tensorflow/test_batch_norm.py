"""The fused kernel under Keras' batch normalization: the same results, and nothing else changed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dltune.job.launch import BOOTSTRAP

pytestmark = pytest.mark.tensorflow

INJECT = [BOOTSTRAP, BOOTSTRAP.parent / "tensorflow" / "inject"]
WORKER = Path(__file__).parent / "keras_worker.py"
# what one rounding to the layer's output is worth
ROUNDING = {"float32": 0.0, "mixed_bfloat16": 2.0**-8, "mixed_float16": 2.0**-10}

Run = Callable[..., Any]


def worker(**environment: str) -> Iterator[Run]:
    child = subprocess.Popen(
        [sys.executable, str(WORKER), *map(str, INJECT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
    )

    def run(code: str, **arguments: Any) -> Any:
        assert child.stdin is not None
        assert child.stdout is not None
        pickle.dump((code, arguments), child.stdin)
        child.stdin.flush()
        result, error = pickle.load(child.stdout)
        assert error is None, error
        return result

    yield run
    child.kill()
    with child:
        pass


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Channels first is fused only under oneDNN, which is asked for here."""
    yield from worker(TF_ENABLE_ONEDNN_OPTS="1")


@pytest.fixture(scope="module")
def eigen() -> Iterator[Run]:
    yield from worker(TF_ENABLE_ONEDNN_OPTS="0")


STEP = """
def step(dtype, x, w):
    rank = x.ndim
    channels = x.shape[case["axis"]]
    random = np.random.default_rng(case["seed"])
    layer = keras.layers.BatchNormalization(
        axis=case["axis"], momentum=case["momentum"], epsilon=case["epsilon"],
        center=case["center"], scale=case["scale"], dtype=dtype,
    )
    layer.build((None, *x.shape[1:]))
    for weight in layer.weights:
        positive = "variance" in weight.path
        value = random.normal(1, 0.5, channels)
        weight.assign(np.abs(value) if positive else value)
    def forward(x, w):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=case["training"])
            total = tf.reduce_sum(tf.cast(y, w.dtype) * w)
        return y, tape.gradient(total, [x, *[v.value for v in layer.trainable_weights]])
    if case["graph"]:
        open_shape = tf.TensorSpec([None, *x.shape[1:]], x.dtype)
        forward = tf.function(
            forward, input_signature=[open_shape, open_shape], jit_compile=case["xla"]
        )
    y, (dx, *dweights) = forward(tf.constant(x), tf.constant(w, x.dtype))
    found = {"y": y, "dx": dx}
    found |= {f"d{v.name}": d for v, d in zip(layer.trainable_weights, dweights)}
    found |= {v.name: tf.convert_to_tensor(v.value) for v in layer.non_trainable_weights}
    return {name: np.asarray(tf.cast(value, "float64")) for name, value in found.items()}

random = np.random.default_rng(case["seed"])
x = random.normal(case["mean"], case["spread"], case["shape"])
w = random.normal(0, 1, case["shape"])
low = {"float32": "float32", "mixed_bfloat16": "bfloat16", "mixed_float16": "float16"}
narrow = tf.cast(x, low[case["dtype"]]).numpy()
narrow_w = tf.cast(w, low[case["dtype"]]).numpy()
with plain():
    theirs = step(case["dtype"], narrow, narrow_w)
    judge = step("float64", narrow.astype("float64"), narrow_w.astype("float64"))
with fused():
    ours = step(case["dtype"], narrow, narrow_w)
result = theirs, ours, judge, max((message["count"] for message in told), default=0)
"""

SHAPES = st.integers(3, 5).flatmap(
    lambda rank: st.tuples(
        st.integers(1, 6), *[st.integers(1, 7)] * (rank - 2), st.integers(1, 20)
    ).filter(lambda shape: any(extent > 1 for extent in shape[1:-1]))
)
CASES = st.fixed_dictionaries(
    {
        "shape": SHAPES,
        "axis": st.sampled_from([-1, -1, 1]),
        "dtype": st.sampled_from(["float32", "float32", "mixed_bfloat16", "mixed_float16"]),
        "epsilon": st.sampled_from([1e-3, 1e-5, 1e-2, 0.5]),
        "momentum": st.sampled_from([0.99, 0.9, 0.0, 1.0, 0.3333]),
        "center": st.booleans(),
        "scale": st.booleans(),
        "training": st.just(True),
        "mean": st.sampled_from([0.0, 1.0, -30.0]),
        "spread": st.sampled_from([1.0, 0.01, 50.0]),
        "seed": st.integers(0, 2**32 - 1),
        "graph": st.booleans(),
        "xla": st.just(None),
    }
)
ONE = {
    "shape": (4, 3, 3, 5),
    "axis": -1,
    "dtype": "float32",
    "epsilon": 1e-3,
    "momentum": 0.9,
    "center": True,
    "scale": True,
    "training": True,
    "mean": 1.0,
    "spread": 1.0,
    "seed": 1,
    "graph": True,
    "xla": None,
}


def apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max(initial=0.0))


def assert_same(case: dict[str, Any], theirs: dict, ours: dict, judge: dict) -> None:
    """Within 1e-5 of Keras' own, or as near the truth as float32 can be.

    Values far from 0 beside their deviation lose digits when the mean is taken off them, and a
    gradient of x is a difference of terms that may cancel.
    """
    assert theirs.keys() == ours.keys()
    inverse, condition, count = _conditioning(case)
    terms = {"y": 1.0, "dx": inverse, "dgamma": count}
    for name, true in judge.items():
        size = np.abs(true).max(initial=0.0)
        rounding = ROUNDING[case["dtype"]] * size if name in ("y", "dx") else 0.0
        near = apart(ours[name], theirs[name]) <= 1e-5 * size + rounding
        scale = max(size, terms.get(name, 0.0))
        lost = (1e-5 + 2.0**-21 * condition) * scale + rounding
        assert near or apart(ours[name], true) <= lost, (name, apart(ours[name], true), lost)


def _conditioning(case: dict[str, Any]) -> tuple[float, float, int]:
    """The largest 1 / deviation, how many deviations the values are from 0, values a channel."""
    x = np.random.default_rng(case["seed"]).normal(case["mean"], case["spread"], case["shape"])
    axes = tuple(i for i in range(x.ndim) if i != case["axis"] % x.ndim)
    inverse = (1 / np.sqrt(np.var(x, axis=axes) + case["epsilon"])).max()
    return float(inverse), float(np.abs(x).max() * inverse), x.size // x.shape[case["axis"]]


@hypothesis_settings(max_examples=60)
@given(CASES)
def test_results_statistics_and_gradients_are_those_of_keras(run, case):
    theirs, ours, judge, acted = run(STEP, case=case)
    channels = case["axis"] % len(case["shape"])
    extents = [n for at, n in enumerate(case["shape"]) if at not in (0, channels)]
    assert acted == (1 if any(n > 1 for n in extents) else 0)
    assert_same(case, theirs, ours, judge)


@pytest.mark.parametrize("xla", [None, True])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_single_example_and_xla(run, batch, xla):
    case = {**ONE, "shape": (batch, 3, 3, 5), "xla": xla}
    theirs, ours, judge, acted = run(STEP, case=case)
    assert acted == 1
    assert_same(case, theirs, ours, judge)


def test_one_value_a_channel_has_no_variance(run):
    case = {**ONE, "shape": (1, 2, 1, 5), "axis": -1, "spread": 0.0}
    theirs, ours, judge, acted = run(STEP, case=case)
    assert acted == 1
    assert_same(case, theirs, ours, judge)


@pytest.mark.parametrize("graph", [True, False])
def test_an_empty_batch_makes_statistics_nan_as_in_keras(run, graph):
    case = {**ONE, "shape": (0, 3, 3, 5), "graph": graph}
    theirs, ours, _, _ = run(STEP, case=case)
    for name in ("y", "dx", "moving_mean", "moving_variance"):
        np.testing.assert_array_equal(theirs[name], ours[name])


def test_eigen_too(eigen):
    for seed in range(5):
        case = {**ONE, "seed": seed, "shape": (3, 5, 4, 7), "epsilon": 1e-5}
        theirs, ours, judge, acted = eigen(STEP, case=case)
        assert acted == 1
        assert_same(case, theirs, ours, judge)


@pytest.mark.parametrize(
    "change", [{"training": False}, {"training": None}, {"shape": (6, 5)}, {"axis": 2}]
)
def test_what_is_left_to_keras_is_bit_for_bit_its_own(run, change):
    theirs, ours, _, acted = run(STEP, case={**ONE, **change})
    assert acted == 0
    for name in theirs:
        np.testing.assert_array_equal(theirs[name], ours[name])


def test_channels_first_without_onednn_are_left(eigen):
    _, _, _, acted = eigen(STEP, case={**ONE, "axis": 1})
    assert acted == 0


LEFT = """
x = tf.random.normal([4, 3, 3, 5])
class OwnCall(keras.layers.BatchNormalization):
    def call(self, inputs, training=None, mask=None):
        return super().call(inputs * 2, training=training, mask=mask)
class OwnMoments(keras.layers.BatchNormalization):
    def _moments(self, inputs, mask):
        return super()._moments(inputs, mask)
class Plain(keras.layers.BatchNormalization):
    pass
with fused():
    OwnCall(name="own_call")(x, training=True)
    OwnMoments(name="own_moments")(x, training=True)
    Plain(name="plain")(x, training=True)
    frozen = keras.layers.BatchNormalization(name="frozen", trainable=False)
    frozen(x, training=True)
    keras.layers.BatchNormalization(name="wide", dtype="float64")(x, training=True)
    keras.layers.BatchNormalization(name="told")(x, training=tf.constant(True))
    keras.layers.BatchNormalization(name="masked")(x, training=True, mask=tf.ones([4, 3, 3]))
    keras.layers.BatchNormalization(name="renorm", renorm=True)(x, training=True)
result = told[-1]["count"], told[-1]["left"]
"""


def test_what_does_not_fit_is_left_and_told(run):
    count, left = run(LEFT)
    assert count == 1
    assert {sentence.partition(":")[0] for sentence in left} == {
        "own_call", "own_moments", "frozen", "wide", "told", "masked", "renorm"
    }  # fmt: skip


ERRORS = """
def said(make):
    try:
        make()
    except Exception as error:
        return type(error).__name__, str(error)
x = tf.random.normal([4, 3, 3, 5])
def built():
    layer = keras.layers.BatchNormalization(name="n")
    layer(x)
    return layer
cases = [
    lambda: built()(tf.zeros([4, 3, 3, 6]), training=True),
    lambda: built()(tf.zeros([4, 5]), training=True),
    lambda: built()(x, training=True, mask=tf.ones([4])),
    lambda: keras.layers.BatchNormalization(axis=7)(x, training=True),
    lambda: keras.layers.BatchNormalization()("text", training=True),
    lambda: tf.function(lambda t: built()(x, training=t))(tf.constant(True)),
]
with plain():
    theirs = [said(case) for case in cases]
with fused():
    ours = [said(case) for case in cases]
result = theirs, ours
"""


def test_wrong_input_gets_the_words_of_keras(run):
    theirs, ours = run(ERRORS)
    assert theirs == ours
    assert all(theirs)


SAVED = """
import pathlib, tempfile
def model():
    keras.utils.set_random_seed(0)
    return keras.Sequential([
        keras.layers.Input((6, 6, 3), name="images"),
        keras.layers.Conv2D(4, 3, name="convolution"),
        keras.layers.BatchNormalization(name="norm"),
        keras.layers.Flatten(name="flat"),
        keras.layers.Dense(2, name="head"),
    ], name="model")
x = np.random.default_rng(0).normal(size=(8, 6, 6, 3)).astype("float32")
y = np.zeros([8, 2], "float32")
found = {}
with tempfile.TemporaryDirectory() as folder, fused():
    folder = pathlib.Path(folder)
    trained = model()
    trained.compile("sgd", "mse")
    trained.fit(x, y, verbose=0)
    for name in ("m.keras", "m.h5"):
        trained.save(folder / name)
    trained.export(folder / "exported", verbose=False)
    with plain():
        expected = trained.predict(x, verbose=0)
        for name in ("m.keras", "m.h5"):
            loaded = keras.models.load_model(folder / name, compile=False)
            found[name] = loaded.predict(x, verbose=0)
        exported = tf.saved_model.load(str(folder / "exported"))
        found["exported"] = exported.serve(x).numpy()
        weights = [w.path for w in model().weights]
        config = model().get_config()
        config_of_layer = model().get_layer("norm").get_config()
    same = (
        [w.path for w in model().weights] == weights,
        model().get_config() == config,
        model().get_layer("norm").get_config() == config_of_layer,
        len(trained.get_layer("norm").weights) == 4,
    )
result = expected, found, same
"""


def test_what_is_saved_and_loaded_is_the_same(run):
    expected, found, same = run(SAVED)
    for name, predicted in found.items():
        np.testing.assert_allclose(predicted, expected, rtol=1e-6, err_msg=name)
    assert all(same)


TWICE = """
def penalty():
    keras.utils.set_random_seed(0)
    layer = keras.layers.BatchNormalization()
    x = tf.constant(np.random.default_rng(0).normal(size=(4, 3, 3, 5)), tf.float32)
    layer.build(x.shape)
    @tf.function
    def both():
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                total = tf.reduce_sum(tf.sin(layer(x, training=True)))
            loss = tf.reduce_sum(tf.square(inner.gradient(total, x)))
        return outer.gradient(loss, [x, layer.gamma.value])
    return [np.asarray(g) for g in both()]
with plain():
    theirs = penalty()
with fused():
    ours = penalty()
result = theirs, ours
"""


def test_a_gradient_of_a_gradient(run):
    theirs, ours = run(TWICE)
    for one, other in zip(theirs, ours, strict=True):
        assert apart(one, other) <= 1e-4 * np.abs(one).max()


NODES = """
def nodes():
    layer = keras.layers.BatchNormalization()
    layer.build((None, 8, 8, 16))
    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 16])])
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(tf.square(layer(x, training=True)))
        return tape.gradient(total, [x, layer.gamma.value, layer.beta.value])
    graph = step.get_concrete_function().graph
    return [op.type for op in graph.get_operations()]
with plain():
    theirs = nodes()
with fused():
    ours = nodes()
result = theirs, ours
"""


def test_the_graph_is_smaller(run):
    theirs, ours = run(NODES)
    assert ours.count("FusedBatchNormV3") == ours.count("FusedBatchNormGradV3") == 1
    assert len(ours) < len(theirs) / 2
