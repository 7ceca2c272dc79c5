from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dltune.base.errors import UsageError
from dltune.plan.plan import load_plan, plan_faults, with_sections
from dltune.schemas.plan import SCHEMA, Candidate, OpPlan, Plan, Prediction, Threads, Uniform

OP = OpPlan("Conv2D(f32[8])", 2, "spread", 1.0, 2.0, (0, 1), (Candidate(2, "spread", 1.0),))
SECTION = Threads(
    "per-type+co-run",
    Uniform(2, 4),
    True,
    False,
    3e-5,
    (OP,),
    (Prediction("per-type+co-run", 1.0, 1.0, 1.0),),
)
PLAN = Plan(
    SCHEMA, "2026-01-01", "0", "00", "11", "machine", 2, None, ("signature",), {"threads": SECTION}
)


AT = "threads.ops[0] (Conv2D(f32[8]))"


def with_section(**changes: object) -> Plan:
    return with_sections(PLAN, threads=msgspec.structs.replace(SECTION, **changes))


def with_op(**changes: object) -> Plan:
    return with_section(ops=(msgspec.structs.replace(OP, **changes),))


def test_a_plan_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(PLAN))
    assert load_plan(path) == PLAN
    assert plan_faults(msgspec.structs.replace(PLAN, sections={})) == []


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (msgspec.structs.replace(PLAN, cores=0, sections={}), "cores must be at least 1, got 0"),
        (with_section(uniform=Uniform(0, 1)), "threads.uniform.intra must be at least 1, got 0"),
        (with_section(corun=False, hyperthreads=True), "smt needs co-run"),
        (with_section(small=-1.0), "threads.small must be finite and not negative, got -1.0"),
        (
            with_section(ops=(OP, OP)),
            "threads.ops must contain each key only once, got 'Conv2D(f32[8])' 2 times",
        ),
        (
            with_section(strategy="best"),
            "threads.strategy must be one of the settings in predictions, got 'best'",
        ),
        (
            with_section(predictions=(Prediction("per-type+co-run", -1.0, 1.0, 1.0),)),
            "threads.predictions[0].seconds must be finite and not negative, got -1.0",
        ),
        (with_op(threads=0), f"{AT}.threads must be at least 1, got 0"),
        (with_op(threads=-3), f"{AT}.threads must be at least 1, got -3"),
        (
            with_op(cores=(0, 2)),
            f"{AT}.cores must be at least 0 and below 2 (the number of cores), got 2",
        ),
        (with_op(cores=(0, 0)), f"{AT}.cores must contain each core only once, got 0 2 times"),
        (with_op(cores=()), f"{AT}.cores must not be empty"),
        (with_op(seconds=-1.0), f"{AT}.seconds must be finite and not negative, got -1.0"),
        (
            with_op(candidates=(Candidate(0, "spread", 1.0),)),
            f"{AT}.candidates[0].threads must be at least 1, got 0",
        ),
        (
            with_op(candidates=OP.candidates * 4),
            f"{AT}.candidates must be at most 3, got 4 of them",
        ),
    ],
)
def test_what_cannot_be_done_is_told_with_its_path(tmp_path: Path, plan: Plan, told: str) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(plan))
    with pytest.raises(UsageError) as caught:
        load_plan(path)
    assert told in str(caught.value)
