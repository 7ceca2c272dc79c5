from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dltune.documents.plan import SCHEMA, Plan
from dltune.documents.sections.threads import Candidate, OpPlan, Prediction, Threads, Uniform
from dltune.errors import UsageError
from dltune.planners.plan import check, load, with_sections

OP = OpPlan("Conv2D(f32[8])", 2, "spread", 1.0, 2.0, (0, 1), (Candidate(2, "spread", 1.0),))
SECTION = Threads(
    "s1+s2+s3", Uniform(2, 4), True, False, 3e-5, (OP,), (Prediction("s1+s2+s3", 1.0, 1.0, 1.0),)
)
PLAN = Plan(
    SCHEMA, "2026-01-01", "0", "00", "11", "machine", 2, None, ("signature",), {"threads": SECTION}
)


def with_section(**changes: object) -> Plan:
    return with_sections(PLAN, threads=msgspec.structs.replace(SECTION, **changes))


def with_op(**changes: object) -> Plan:
    return with_section(ops=(msgspec.structs.replace(OP, **changes),))


def test_a_plan_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(PLAN))
    assert load(path) == PLAN
    assert check(msgspec.structs.replace(PLAN, sections={})) == []


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (msgspec.structs.replace(PLAN, cores=0, sections={}), "cores: 0 is below 1"),
        (with_section(uniform=Uniform(0, 1)), "threads.uniform.intra: 0 is below 1"),
        (with_section(corun=False, hyperthreads=True), "strategy 4 needs strategy 3"),
        (with_section(small=-1.0), "threads.small"),
        (with_section(ops=(OP, OP)), "is there 2 times"),
        (with_section(strategy="best"), "none of the settings"),
        (with_section(predictions=(Prediction("s1+s2+s3", -1.0, 1.0, 1.0),)), "seconds: -1.0"),
        (with_op(threads=0), "threads: 0 is below 1"),
        (with_op(threads=-3), "threads: -3 is below 1"),
        (with_op(cores=(0, 2)), "there is no core 2 among 2"),
        (with_op(cores=(0, 0)), "a core is named twice"),
        (with_op(cores=()), "needs at least one core"),
        (with_op(seconds=-1.0), "seconds: -1.0"),
        (with_op(candidates=(Candidate(0, "spread", 1.0),)), "candidates[0].threads: 0"),
        (with_op(candidates=OP.candidates * 4), "4 of them; at most 3"),
    ],
)
def test_what_cannot_be_done_is_told_with_its_path(tmp_path: Path, plan: Plan, told: str) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(plan))
    with pytest.raises(UsageError) as caught:
        load(path)
    assert told in str(caught.value)
