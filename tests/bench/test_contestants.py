"""Settings by name, and what a plan predicts for each."""

from __future__ import annotations

import msgspec
import pytest
import synthetic

from dltune.base.errors import UsageError
from dltune.bench.contestants import on_part, settings
from dltune.plan.plan import with_sections
from dltune.plan.settings.choices import NOTHING, Applied, applied
from dltune.schemas.plan import SCHEMA, Candidate, OpPlan, Plan, Prediction, Threads, Uniform
from dltune.schemas.settings import Choice, SettingsPlan

MACHINE = synthetic.machine(8, hardware=2, sockets=2)
PREDICTIONS = tuple(
    Prediction(name, seconds, 1.0, 1.0)
    for name, seconds in (
        ("default", 4.0),
        ("recommended", 3.0),
        ("uniform 4x2", 2.0),
        ("per-type+co-run", 1.0),
    )
)
OP = OpPlan("Conv2D", 4, "spread", 0.5, 1.0, None, (Candidate(4, "spread", 0.5),))


def plan(*ops: OpPlan, strategy: str = "per-type+co-run", corun: bool = True) -> Plan:
    section = Threads(strategy, Uniform(4, 2), corun, False, 1e-5, ops, PREDICTIONS)
    return Plan(
        SCHEMA,
        "2026",
        "0",
        "00",
        MACHINE.fingerprint,
        "m",
        8,
        None,
        ("a", "b"),
        {"threads": section},
    )


def test_each_name() -> None:
    names = ("default", "recommended", "uniform", "as-found", "1core", "3x5")
    found = {s.name: s for s in settings(names, plan(), MACHINE)}
    assert list(found) == list(names)
    pairs = {name: s.uniform and (s.uniform.intra, s.uniform.inter) for name, s in found.items()}
    assert pairs == {
        "default": (16, 16),
        "recommended": (8, 2),
        "uniform": (4, 2),
        "as-found": None,
        "1core": (1, 1),
        "3x5": (3, 5),
    }
    assert found["1core"].cpus == MACHINE.cores[0].cpus
    assert all(s.cpus is None for s in found.values() if s.name != "1core")
    for one in found.values():
        assert one.orders.barrier
        assert tuple(one.orders.targets) == ("a", "b")
        assert not one.orders.ops
        assert not one.orders.events
    assert not any(line.startswith("uniform") for line in found["as-found"].lines())


def test_predictions_stand_beside_the_setting_they_are_for() -> None:
    names = ("default", "recommended", "uniform", "plan", "as-found", "1core")
    found = {s.name: s.predicted for s in settings(names, plan(), MACHINE)}
    assert found == {
        "default": 4.0,
        "recommended": 3.0,
        "uniform": 2.0,
        "plan": 1.0,
        "as-found": None,
        "1core": None,
    }
    named = settings(("16x16", "8x2", "4x2", "2x2"), plan(), MACHINE)
    assert [s.predicted for s in named] == [4.0, 3.0, 2.0, None]


def test_the_plan_is_enforced_as_run_does_it() -> None:
    corun = settings(("plan",), plan(OP), MACHINE)[0]
    assert list(corun.orders.corun) == ["Conv2D"]
    assert corun.orders.barrier
    assert any(line.startswith("corun\tConv2D") for line in corun.lines())
    alone = settings(("plan",), plan(OP, corun=False), MACHINE)[0]
    assert alone.orders.ops["Conv2D"][0] == 4
    uniform = settings(("plan",), plan(strategy="uniform 4x2", corun=False), MACHINE)[0]
    assert uniform.uniform == Uniform(4, 2)
    assert not uniform.orders.ops
    assert uniform.predicted == 2.0


def with_settings(made: Plan) -> tuple[Plan, Applied]:
    chosen = (Choice("onednn", "on"),)
    section = SettingsPlan(("python",), chosen, "rounding", None, None, (), (), 1.0, None)
    whole = with_sections(made, settings=section)
    return whole, applied(section, MACHINE, ("python",), {})


def test_only_the_plan_runs_under_its_settings_around_the_ops() -> None:
    whole, around = with_settings(plan(OP))
    found = {s.name: s for s in settings(("default", "as-found", "plan"), whole, MACHINE, around)}
    assert found["plan"].applied == around
    assert found["plan"].predicted == 1.0
    for name in ("default", "as-found"):
        assert found[name].applied == NOTHING
        assert found[name].predicted is None  # of the graph as the plan's settings make it
    part = msgspec.structs.replace(MACHINE, cores=MACHINE.cores[:2])
    assert on_part(found["plan"], whole, part).applied == around


def test_a_plan_of_settings_alone_leaves_the_ops_to_tensorflow() -> None:
    whole, around = with_settings(
        msgspec.structs.replace(plan(), sections={}, signatures=()),
    )
    (found,) = settings(("plan",), whole, MACHINE, around)
    assert found.applied == around
    assert found.uniform is None
    assert not found.orders.ops


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ((), "no setting"),
        (("plan", "default", "plan"), "names plan twice"),
        (("fast",), "no setting 'fast'"),
        (("2x",), "no setting '2x'"),
        (("0x1",), "1 to 1024 threads"),
        (("1x4096",), "1 to 1024 threads"),
    ],
)
def test_names_that_stand_for_nothing(names: tuple[str, ...], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        settings(names, plan(), MACHINE)


def test_plans_that_lack_what_is_asked_for() -> None:
    bare = msgspec.structs.replace(plan(), sections={})
    for name in ("plan", "uniform"):
        with pytest.raises(UsageError, match="the plan"):
            settings((name,), bare, MACHINE)
    elsewhere = msgspec.structs.replace(plan(), machine="other")
    with pytest.raises(UsageError, match="the plan was made for"):
        settings(("default",), elsewhere, MACHINE)


def test_a_rank_s_part_is_a_smaller_machine_under_the_same_settings() -> None:
    part = msgspec.structs.replace(MACHINE, cores=MACHINE.cores[:2])
    cut = {
        s.name: on_part(s, plan(OP), part)
        for s in settings(("default", "recommended", "uniform", "plan", "3x5"), plan(OP), MACHINE)
    }
    pairs = {name: (s.uniform.intra, s.uniform.inter) for name, s in cut.items() if s.uniform}
    assert pairs == {
        "default": (4, 4),
        "recommended": (2, 1),
        "uniform": (2, 2),
        "plan": (2, 2),
        "3x5": (3, 5),
    }
    assert cut["plan"].orders.corun
    assert all(s.predicted is None for s in cut.values())
    assert all(s.orders.barrier for s in cut.values())
