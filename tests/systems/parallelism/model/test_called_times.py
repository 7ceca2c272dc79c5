"""Whose time each call of a recorded step is."""

from __future__ import annotations

import msgspec
import pytest
import synthetic

from dltune.schemas.profile import Op, OpTime
from dltune.schemas.pytorch_step import Call, Calls, Layer, Storage
from dltune.systems.parallelism.model.profile_operators import Seconds
from dltune.systems.parallelism.model.pytorch_operators import called, measured

HERE = synthetic.machine(2)
X, W1, W2, W3, A, B, C, D, LOSS, G = range(10)  # storages


def call(name: str, phase: str, seconds: float, reads: tuple[int, ...], *gives: int) -> Call:
    return Call(f"aten.{name}", phase, seconds, 0, reads, gives, (), True, False)  # type: ignore[arg-type]


def layer(path: str, at: int, read: int, weight: int, give: int) -> Layer:
    shape = (8, 4)
    return Layer(
        *(path, "Linear", at, at + 1, (read,), (give,), (shape,), shape, 4, ((weight, 64),)),
        *((), 1, 0),
    )


# two layers read what the first gives out, as queries and keys do
CALLS = (
    call("copy", "aside", 1.0, (), X),
    call("addmm", "forward", 2.0, (X, W1), A),
    call("relu", "forward", 0.5, (A,), A),
    call("addmm", "forward", 3.0, (A, W2), B),
    call("addmm", "forward", 4.0, (A, W3), C),
    call("mul", "forward", 0.25, (B, C), D),
    call("sum", "forward", 0.25, (D,), LOSS),
    call("expand", "backward", 0.125, (LOSS,), G),
    call("mm", "backward", 5.0, (G, W3), 10),  # of the third layer's input
    call("mm", "backward", 6.0, (G, A), 11),  # and of its weight
    call("sum", "backward", 0.125, (G,), 12),  # and bias
    call("mm", "backward", 7.0, (G, W2), 13),
    call("mm", "backward", 8.0, (G, A), 14),
    call("threshold", "backward", 0.5, (13, A), 15),
    call("mm", "backward", 9.0, (15, X), 16),
    call("add", "aside", 10.0, (16, W1), 17),
)
LAYERS = (layer("a", 1, X, 0, A), layer("b", 3, A, 1, B), layer("c", 4, A, 2, C))
STEP = Calls(CALLS, (Storage(4, -1, 0, 0),) * 18, (), (), False, LAYERS)


def case(type: str, alone: float, both: float) -> Op:
    times = tuple(OpTime(n, "spread", 5, t, t, 0.0) for n, t in ((1, alone), (2, both)))
    return Op(f"{type}(float[8,4])", type, (), 2, 0, None, times)


def test_times_of_layers_are_those_of_their_calls():
    ops = [case("aten::linear", 6.0, 4.0), case("aten::add_", 1.0, 2.0)]
    made = synthetic.profile(HERE, ops, {"train": []})
    settings = msgspec.structs.replace(made.settings, intra=2)
    found = measured(STEP, called(STEP, "net"), msgspec.structs.replace(made, settings=settings))

    def products(took: float) -> Seconds:  # alone those of `linear` take 1.5 times as long
        return Seconds(took * 1.5, took)

    def others(took: float) -> Seconds:  # what is not in the profile: as all of it together
        return Seconds(took * 7 / 6, took * 5 / 6)

    forward = (products(2) + others(0.5), products(3), products(4) + others(0.5))
    backward = (products(9), products(7 + 8) + others(0.5), products(5 + 6) + others(0.25))
    flat = [*found.forward, *found.backward, found.update, found.rest]
    expected = [*forward, *backward, Seconds(10 * 0.5, 10 * 0.5), others(1)]
    assert flat == [Seconds(pytest.approx(one.alone), pytest.approx(one.best)) for one in expected]


def test_all_time_is_somebodys():
    made = synthetic.profile(HERE, [], {"train": []})
    found = measured(STEP, called(STEP, "net"), made)
    parts = [*found.forward, *found.backward, found.update, found.rest]
    assert sum(one.best for one in parts) == pytest.approx(sum(one.seconds for one in CALLS))
