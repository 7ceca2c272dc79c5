"""What a timeline tells of the network and of steps, from batches whose cost is known."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dltune.systems.ranks.horovod import timeline
from dltune.systems.ranks.horovod.timeline import Batch, Recording


def recording(steps: int, latency: float, per_byte: float, *, tensors: int = 12) -> Recording:
    """Tensors of 1 kB to 2 MB in turns, each batch by itself, two of three held up by something."""
    chance = random.Random(1)
    batches, now = [], 0.0
    for _ in range(steps):
        for tensor in range(tensors):
            size = 1000 << tensor
            held = chance.choice((0.0, 5e-3, 20e-3))
            took = latency + per_byte * size + held
            batches.append(
                Batch("ALLREDUCE", (f"t{tensor}",), now, now + took, size, took, now, "MPI")
            )
            now += 0.1
    sizes = {f"t{tensor}": 1000 << tensor for tensor in range(tensors)}
    return Recording(Path("x"), 0.0, now, 1, False, [], [], batches, sizes)


def test_the_fastest_collectives_tell_the_network() -> None:
    cost = timeline.summary(recording(100, 50e-6, 1e-9)).cost
    assert cost is not None
    assert cost.latency == pytest.approx(50e-6, rel=0.1)
    assert cost.per_byte == pytest.approx(1e-9, rel=0.1)


def test_steps_are_from_last_transfer_to_last_transfer() -> None:
    step = timeline.summary(recording(30, 50e-6, 0.0)).step
    assert step is not None
    assert step.median == pytest.approx(1.2, abs=0.03)
    assert step.samples == 24


def test_too_few_collectives_tell_nothing() -> None:
    found = timeline.summary(recording(1, 50e-6, 1e-9))
    assert found.cost is None
    assert found.step is None


def test_collectives_of_one_size_tell_a_latency() -> None:
    cost = timeline.summary(recording(60, 50e-6, 1e-9, tensors=1)).cost
    assert cost is not None
    assert cost.per_byte == pytest.approx(0.0, abs=1e-12)
    assert cost.latency == pytest.approx(51e-6)
