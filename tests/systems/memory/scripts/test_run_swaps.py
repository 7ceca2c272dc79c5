"""Plans of swaps done with real blocks, a real file and threads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dltune.schemas.machine import Tier
from dltune.systems.memory import cudnn
from dltune.systems.memory.model.layered import layer_step, schedule_recomputation
from dltune.systems.memory.model.schedule import accesses
from dltune.systems.memory.offload import cached, held, hidden, published

sys.path.append(str(Path(__file__).parents[4] / "scripts" / "research"))
import run_swaps as script

STEP = layer_step(cudnn.alexnet(), 1)
STEPS = schedule_recomputation(STEP, "cost", offload=True)
USES = accesses(STEP.graph, STEPS)
SECONDS = [1e-5] * len(STEPS)
WAYS = {
    "published": published(STEP, STEPS, USES),
    "cache": cached(USES, USES.largest),
    "ours": hidden(USES, SECONDS, USES.largest, Tier("file", 1 << 30, 1e9)),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_used_is_there_and_no_more_is_held_than_planned(way):
    budget = int(held(USES, WAYS[way]).max())
    run = script.Run(USES, SECONDS, WAYS[way], budget, 1e10)
    assert WAYS[way]
    assert run.run() >= sum(SECONDS)
    assert all(one.is_set() for both in run.done.values() for one in both)


def test_a_budget_that_is_exceeded_is_seen():
    with pytest.raises(AssertionError):
        script.Run(USES, SECONDS, [], int(held(USES, []).max()) - 1, 1e10)._steps()


def test_a_block_that_was_not_copied_is_seen(monkeypatch):
    monkeypatch.setattr(script.Engine, "copy", lambda *_, **__: None)
    with pytest.raises(AssertionError):
        script.Run(USES, SECONDS, WAYS["cache"], USES.largest, 1e10).run()
