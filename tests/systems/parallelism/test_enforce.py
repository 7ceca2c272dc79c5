"""A section in force, without a job."""

from __future__ import annotations

from pathlib import Path

import parallel_plans
import synthetic

from dltune.job import protocol, ranks
from dltune.plan.plan import Composition, new_plan

HERE = synthetic.machine(4)


def composed(**environment: str) -> Composition:
    plan = new_plan(HERE, sections={"parallelism": parallel_plans.dense()})
    command = ("python", "train.py")
    return Composition(plan, HERE, command, environment, partial=False, say=lambda _: None)


def python(**environment: str) -> protocol.Python:
    return protocol.Python(7, ["python"], "3.11", environment)


def rank(number: int) -> protocol.Python:
    own = {ranks.RANK: str(number), ranks.LOCAL_RANK: str(number)}
    return python(**own, **dict.fromkeys((ranks.RANKS, ranks.LOCAL_RANKS), "2"))


def test_each_rank_is_told_its_part() -> None:
    reply = composed().answer(rank(1))
    assert {one["module"] for one in reply["adapters"]} == {
        "_dltune_parallel",
        "_dltune_torch_parallel",
    }
    for adapter in reply["adapters"]:
        assert (Path(adapter["folders"][0]) / f"{adapter['module']}.py").exists()
        orders = adapter["orders"]
        assert (orders["rank"], orders["ranks"], orders["plan"]["mesh"]) == (1, 2, [2])
        assert orders["interface"] == "lo"
    assert reply["cpus"] == [cpu for core in HERE.cores[2:] for cpu in core.cpus]
    assert not reply["plugin"]


def test_what_is_no_rank_is_left_alone() -> None:
    assert composed().answer(python()) == {"plugin": False}


def test_what_would_be_enforced() -> None:
    assert [*composed().intent()] == ["2 processes, one per device of a mesh of shape 2"]


def test_a_rank_knows_itself_by_its_variables() -> None:
    assert rank(1).environment == {
        "DLTUNE_RANK": "1",
        "DLTUNE_RANKS": "2",
        "DLTUNE_LOCAL_RANK": "1",
        "DLTUNE_LOCAL_RANKS": "2",
    }
