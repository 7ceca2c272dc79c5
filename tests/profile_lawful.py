"""Profiles whose ops follow a law that a regressor can learn."""

from __future__ import annotations

import random

import msgspec
import pytest
import synthetic

from dltune.schemas.profile import Count, Op, Profile
from dltune.simulate.machine_transfer import Law
from dltune.simulate.regression import NAMES

MACHINE = synthetic.machine(4, tile=1)
# for one test each; those that take long to train are proofs
_SLOW = ("gradient boosting", "Theil-Sen", "MLP sgd", "MLP adam")
REGRESSORS = [
    pytest.param(name, marks=pytest.mark.proof if name in _SLOW else ()) for name in NAMES
]


def profile(ops: int = 60, seed: int = 0, *, events: tuple[str, ...] = ()) -> Profile:
    """Matrix products of many sizes; 5 % of each is serial."""
    draw = random.Random(seed)
    made = []
    for _ in range(ops):
        m, n, k = (draw.randint(8, 2000) for _ in range(3))
        seconds = m * n * k * 1e-9
        key = f"MatMul(float[{m},{k}],float[{k},{n}]){{transpose_a=false, transpose_b=false}}"
        op = synthetic.op("MatMul", Law(0.05 * seconds, 0.95 * seconds, 0.0), MACHINE, key=key)
        made.append(msgspec.structs.replace(op, output_bytes=4 * m * n, times=_counted(op, events)))
    unique = {op.key: op for op in made}
    nodes = [synthetic.node("MatMul", i) for i in range(len(unique))]
    return synthetic.profile(MACHINE, list(unique.values()), {"train": nodes}, span=1.0)


def _counted(op: Op, events: tuple[str, ...]) -> tuple:
    """Each event happens as often as nanoseconds pass, twice for the second, and so on."""
    return tuple(
        msgspec.structs.replace(
            time,
            counts=tuple(
                Count(event, time.median * 1e9 * (index + 1), 0.0, 5)
                for index, event in enumerate(events)
            ),
        )
        for time in op.times
    )
