"""What is simulated for the page is what the plan predicted."""

from __future__ import annotations

import exhibits
import msgspec
import pytest

from dltune.base.errors import DltuneError
from dltune.plan.plan import merge_section, with_sections
from dltune.plan.threads.decide import choose
from dltune.report import timeline
from dltune.report.timeline import simulations
from dltune.simulate.machine_transfer import transferred
from dltune.simulate.workload import calibrated
from dltune.system.topology import builtin_machine


@pytest.mark.parametrize("strategy", ["per-type", "per-type+co-run", "uniform"])
def test_the_plans_timeline_takes_what_the_plan_predicts(strategy: str) -> None:
    profile = exhibits.profile(cores=4)
    plan = exhibits.plan(profile, strategy)
    predicted = next(
        p.seconds
        for p in plan.sections["threads"].predictions
        if p.setting == plan.sections["threads"].strategy
    )
    found = simulations(profile, plan).found
    wanted = f"simulated: plan {plan.sections['threads'].strategy}"
    seconds = {one.title: one.outcome.seconds for one in found}
    own = f"simulated: own settings {profile.settings.intra}x{profile.settings.inter}"
    if (
        plan.sections["threads"].strategy
        == f"uniform {profile.settings.intra}x{profile.settings.inter}"
    ):
        wanted = own
    assert seconds[wanted] == pytest.approx(predicted, rel=1e-6)
    assert seconds[own] == pytest.approx(profile.steps[0].wall.median, rel=1e-3)


def test_an_edit_by_hand_is_simulated() -> None:
    profile = exhibits.profile()
    plan = exhibits.plan(profile, "per-type")
    slower = tuple(
        msgspec.structs.replace(op, threads=1, seconds=op.serial)
        for op in plan.sections["threads"].ops
    )
    edited = with_sections(
        plan, threads=msgspec.structs.replace(plan.sections["threads"], ops=slower)
    )
    as_made, by_hand = (simulations(profile, p).found[1].outcome.seconds for p in (plan, edited))
    assert by_hand > 1.5 * as_made


def test_a_plan_for_a_known_machine_and_for_an_unknown_one() -> None:
    profile = exhibits.profile()
    there = builtin_machine("knl-7250")
    workload, _ = calibrated(profile)
    moved = transferred(workload, there)
    plan = merge_section(
        None, "threads", choose(moved, "per-type+co-run").threads(moved), there, profile
    )
    found = simulations(profile, plan)
    assert found.remark is None
    assert max(max(c) for c in found.found[-1].outcome.timelines[0].cores if c) == 67
    unknown = msgspec.structs.replace(plan, machine="another", machine_name="Elsewhere")
    found = simulations(profile, unknown)
    assert found.remark == (
        "no timeline of the plan: it is for Elsewhere with 68 cores, whose description is missing"
    )
    assert [one.title for one in found.found] == ["simulated: own settings 2x2"]


def test_without_a_compiler_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object) -> None:
        raise DltuneError("the simulator could not be built: no g++")

    monkeypatch.setattr(timeline, "calibrated", none)
    found = simulations(exhibits.profile(), None)
    assert not found.found
    assert found.remark == "no simulated timelines: the simulator could not be built: no g++"
