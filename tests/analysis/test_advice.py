"""Advice: each piece from figures that speak for it, and none where nothing does."""

from __future__ import annotations

import msgspec
import pytest
from keyed import keyed
from norms import Graph
from synthetic import machine, node, profile

from dltune.analysis.advice import Advice, advise
from dltune.documents.profile import Counters, Part, Profile, Settings
from dltune.planners.settings.space import SPACE

IMAGE = (8, 6, 6, 16)
AXES = (0, 1, 2)


def parts(made: Profile, **seconds: float) -> Profile:
    step = made.steps[0]
    told = tuple(Part(name, value) for name, value in seconds.items())  # type: ignore[arg-type]
    return msgspec.structs.replace(made, steps=(msgspec.structs.replace(step, parts=told),))


def plain(*ops, **more) -> Profile:
    nodes = [node(op.type, index) for index, op in enumerate(ops)]
    return profile(machine(2), ops, {"train": nodes}, span=0.03, **more)


def owned(key: str, own: float, count: int = 1):
    return msgspec.structs.replace(keyed(key, count=count), own=own)


def only(made: Profile) -> Advice:
    (advice,) = advise(made)
    return advice


@pytest.fixture
def normed() -> Graph:
    """One layer and its gradient, 24 ops of 10 us; the rest takes as long."""
    graph = Graph()
    source = graph.add("conv", "Conv2D", IMAGE, seconds=23e-5)
    inner = graph.norm("layer", source, IMAGE, AXES)
    above = graph.add("relu_grad", "ReluGrad", IMAGE, inner[-1])
    graph.gradient("layer", source, above, IMAGE, AXES)
    return graph


def test_batch_norm_in_pieces(normed):
    made = normed.profile()
    first = advise(made)[0]
    assert first.settings == ("batch_norm",)
    assert first.sentence.startswith(
        "batch norm is not fused: 1 layer is 24 ops a step, 50% of the op time"
    )
    assert first.gain is not None
    assert 0 < first.gain.low <= first.gain.high < 0.5


def test_the_gain_is_of_the_wall_time_not_of_the_op_time(normed):
    made = normed.profile()
    whole, part = advise(made)[0], advise(parts(made, ops=0.001, python=0.009))
    batch_norm = next(advice for advice in part if advice.settings == ("batch_norm",))
    assert whole.gain is not None
    assert batch_norm.gain is not None
    assert batch_norm.gain.high == pytest.approx(whole.gain.high / 10)


def test_steps_that_wait_for_their_data():
    made = parts(plain(owned("Relu(float[8])", 1e-3)), ops=0.006, input=0.003, python=0.0003)
    advice = only(made)
    assert advice.settings == ("input_prefetch", "input_threads")
    assert "32% of the wall time" in advice.sentence
    assert str(advice).endswith("expected gain: at most 32% of the step")


def test_python_between_the_steps():
    advice = only(parts(plain(owned("Relu(float[8])", 1e-3)), ops=0.006, python=0.004))
    assert advice.settings == ("steps_per_execution",)
    assert advice.gain is not None
    assert advice.gain.high == pytest.approx(0.4)


def test_faults_of_ops_cost_what_the_machine_says():
    ops = [keyed("Relu(float[1000000])", seconds={1: 8e-3, 2: 4e-3},
                 counts={"page-faults": 1000.0}, count=3)]  # fmt: skip
    counters = Counters("auto", "software events", ((),), fault_seconds=2e-6)
    made = msgspec.structs.replace(plain(*ops), counters=counters)
    advice = only(made)
    assert advice.settings == ("allocator",)
    assert advice.sentence.startswith(
        "the ops of a step have 3,000 page faults, 6 ms of CPU time at 2 us each, as measured here"
    )
    assert advice.gain is not None
    # 1 ms on each of two threads, of 4 ms
    assert advice.gain.high == pytest.approx(0.25)
    few = [keyed("Relu(float[1000000])", seconds={2: 4e-3}, counts={"page-faults": 10.0})]
    assert advise(msgspec.structs.replace(plain(*few), counters=counters)) == []


def test_more_threads_than_the_quota():
    ops = [keyed("Relu(float[1000000])", seconds={1: 4e-3, 2: 5e-3})]
    made = plain(*ops)
    there = msgspec.structs.replace(machine(2), quota=1.5)
    advice = only(msgspec.structs.replace(made, machine=there))
    assert advice.settings == ("threads",)
    assert "2 threads, more than the quota of 1.5 CPUs" in advice.sentence
    assert "they take 4 ms on 1 and 5 ms on 2" in advice.sentence
    assert advice.gain is not None
    assert advice.gain.high == pytest.approx(0.2)


def test_more_threads_than_cores():
    ops = [keyed("Relu(float[1000000])", seconds={1: 4e-3, 2: 5e-3})]
    advice = only(plain(*ops, settings=Settings(64, 64)))
    assert "64 threads, more than the 2 cores" in advice.sentence
    assert advice.gain is None
    assert advise(plain(*ops)) == []


def test_small_ops():
    ops = [owned("Mul(float[8])", 4e-6, count=400), owned("Conv2D(float[8],float[8])", 4e-3)]
    nodes = [node("Mul", 0) for _ in range(400)] + [node("Conv2D", 1)]
    made = profile(machine(2), ops, {"train": nodes}, span=0.01)
    found = {advice.settings: advice for advice in advise(made)}
    advice = found["jit_compile", "xla"]
    assert advice.sentence.startswith("400 of 401 ops a step are shorter than 20 us, 29% of the")
    assert "only measuring tells" in advice.sentence


@pytest.mark.parametrize(
    ("ops", "advised"),
    [
        ([("Conv2D(float[8,8],float[8])", 0.5), ("Mul(float[8])", 0.5)], True),
        ([("_FusedMatMul(float[8,8],float[8])", 0.5), ("Mul(float[8])", 0.5)], True),
        ([("_MklNativeConv2D(float[8],float[8])", 0.5), ("MatMul(float[8],float[8])", 0.5)], False),
        ([("Conv2D(float[8,8],float[8])", 0.01), ("Mul(float[8])", 1.0)], False),
        ([("Conv2D(double[8,8],double[8])", 1.0)], False),
        ([], False),
    ],
)
def test_onednn_off(ops, advised):
    found = advise(plain(*(owned(key, seconds) for key, seconds in ops)))
    assert [advice.settings for advice in found] == ([("onednn",)] if advised else [])
    assert not advised or "50% of the op time" in found[0].sentence


def test_the_largest_expected_gain_comes_first(normed):
    made = parts(normed.profile(), ops=0.005, input=0.001, python=0.004)
    gains = [a.gain.low + a.gain.high for a in advise(made) if a.gain]
    assert len(gains) >= 3
    assert gains == sorted(gains, reverse=True)


def test_every_setting_that_is_named_is_in_the_space(normed):
    made = parts(normed.profile(), ops=0.001, executor=0.001, input=0.001, python=0.001)
    seen = {name for advice in advise(made) for name in advice.settings}
    seen |= {"onednn", "threads", "allocator"}
    assert seen <= {setting.name for setting in SPACE}
