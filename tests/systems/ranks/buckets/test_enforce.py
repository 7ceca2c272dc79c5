"""Which ranks get buckets, by what their launcher tells."""

from __future__ import annotations

import pytest
import synthetic

from dltune.base.errors import JobFailed, UsageError
from dltune.job import protocol
from dltune.job.launch import Event
from dltune.job.rank_layout import Shares
from dltune.plan.plan import new_plan
from dltune.plan.planner import Run
from dltune.systems.ranks.buckets.enforce import EnforcedBuckets
from dltune.systems.ranks.buckets.section import Buckets, Model

HERE = synthetic.machine(2)
MODEL = Model("a", (4, 8, 4), (16,), (12, 4), (12, 4), 1.0, 0.9)


def enforced(environment: dict[str, str], *, partial: bool = False) -> EnforcedBuckets:
    section = Buckets((MODEL,), 0.0, 0.0)
    plan = new_plan(HERE, sections={"buckets": section})
    run = Run(plan, HERE, ("python",), environment, partial, lambda _: None, Shares(HERE))
    return EnforcedBuckets(section, run)


def torchrun(rank: int, size: int, local: int) -> dict[str, str]:
    return {
        **{"RANK": str(rank), "WORLD_SIZE": str(size)},
        **{"LOCAL_RANK": str(rank % local), "LOCAL_WORLD_SIZE": str(local)},
    }


def python(environment: dict[str, str]) -> protocol.Python:
    return protocol.Python(1, ["python"], "3.11", environment)


@pytest.mark.parametrize(
    ("own", "told", "given"),
    [
        ({}, {}, True),  # no rank, or one that a script starts by itself
        ({}, torchrun(1, 2, 2), True),
        ({}, torchrun(1, 4, 2), False),  # two of four are on another node
        (torchrun(1, 4, 2), torchrun(1, 4, 2), True),  # each rank has a dltune
        # of Slurm's two tasks, each of which is a torchrun
        (
            {**torchrun(1, 4, 2), "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"},
            {**torchrun(1, 4, 2), "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"},
            True,
        ),
    ],
)
def test_all_ranks_have_the_same_buckets(
    own: dict[str, str], told: dict[str, str], given: bool
) -> None:
    reply = enforced(own).answer(python(told))
    if not given:
        assert reply == {}
        return
    (adapter,) = reply["adapters"]  # type: ignore[misc]
    assert adapter["orders"] == {"models": [{"gradients": [4, 4, 8], "limits": (12, 4)}]}


def told(gradients: int, buckets: list[int], left: str = "") -> Event:
    return Event(None, protocol.Buckets(7, 0, gradients, buckets, left))


def test_each_model_is_told_of() -> None:
    there = enforced({})
    for event in (told(3, []), told(3, [12, 4]), told(5, [], "other gradients"), told(2, [])):
        there.hear(None, event)  # type: ignore[arg-type]
    assert there._run.changed(7) == "with its buckets"
    assert there._run.changed(8) == ""
    assert there.ended(0).sentences == [
        "rank 0: 3 gradients in 2 buckets of 12 B, 4 B, as planned",
        "rank 0: 2 gradients; the rank ended before its buckets were known",
        "rank 0: the buckets of a model with 5 gradients are unchanged: other gradients",
    ]


def test_a_plan_that_changed_nothing_is_no_success() -> None:
    with pytest.raises(UsageError, match="no process of the job created a Distributed"):
        enforced({}).ended(0)
    with pytest.raises(JobFailed, match="exit code 3") as raised:
        enforced({}).ended(3)
    assert raised.value.exit_code == 3
    assert enforced({}, partial=True).ended(0).sentences == []
