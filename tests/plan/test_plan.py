"""Plans as a whole: several sections in one, for one machine and one set of graphs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import synthetic

from dltune.base import files
from dltune.base.errors import UsageError
from dltune.plan.plan import (
    bare,
    check,
    for_any_graph,
    in_order,
    load,
    put,
    require_fitting,
    require_machine,
    unlike,
)
from dltune.schemas.plan import Plan, first
from dltune.schemas.profile import Framework, Profile
from dltune.schemas.sections.settings import Choice, SettingsPlan
from dltune.schemas.sections.threads import (
    OpPlan,
    Prediction,
    Threads,
    Uniform,
)
from dltune.systems.lmdb.section import IoPlan
from dltune.systems.ranks.allreduce.section import AllreducePlan

HERE = synthetic.machine(2)
PLAIN = synthetic.network(HERE, layers=2)
OP = OpPlan("Conv2D", 2, "spread", 1.0, 2.0)
THREADS = Threads(
    "per-type", Uniform(2, 1), False, False, 0.0, (OP,), (Prediction("per-type", 1.0, 1.0, 1.0),)
)
UNIFORM = msgspec.structs.replace(THREADS, ops=())
READING = IoPlan("", (), ())
RANKS = AllreducePlan("", "gloo", 2, 2, None, None, None, None, None, False, (), ())
SECTIONS = {"threads": THREADS, "io": READING, "allreduce": RANKS}


def tuned(*chosen: str) -> SettingsPlan:
    choices = tuple(Choice(*choice.split("=")) for choice in chosen)
    return SettingsPlan(("python",), choices, "rounding", None, None, (), (), 1.0, None)


FUSED = tuned("batch_norm=fused")  # another graph
TCMALLOC = tuned("allocator=tcmalloc")  # the same


def under(settings: SettingsPlan) -> Profile:
    return msgspec.structs.replace(PLAIN, under=settings)


def of(name: str) -> Profile | None:
    """What a section of that planner is decided from."""
    return PLAIN if name in ("threads", "allreduce") else None


@pytest.mark.parametrize("name", [*SECTIONS, "settings"])
def test_no_planner_adds_to_a_plan_for_another_machine(name: str) -> None:
    section = SECTIONS.get(name, FUSED)
    for other, there in {**SECTIONS, "settings": TCMALLOC}.items():
        elsewhere = put(None, other, there, synthetic.machine(4))
        with pytest.raises(UsageError, match=r"with 4 cores, but the new section is for .* with 2"):
            put(elsewhere, name, section, HERE, of(name))


@pytest.mark.parametrize("first", SECTIONS)
@pytest.mark.parametrize("second", SECTIONS)
def test_each_two_sections_stand_in_one_plan_whichever_comes_first(
    first: str, second: str, tmp_path: Path
) -> None:
    one = put(None, first, SECTIONS[first], HERE, of(first))
    both = put(one, second, SECTIONS[second], HERE, of(second))
    assert set(both.sections) == {first, second}
    if of(first) or of(second):
        assert both.signatures == ("signature-train",)
        assert both.framework == PLAIN.framework
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(both))
    assert load(tmp_path / "plan.json") == both


def test_sections_take_effect_in_one_order() -> None:
    plan = bare(HERE, sections={**SECTIONS, "settings": FUSED})
    names = [name for name, _ in in_order(plan)]
    assert names.index("settings") < names.index("allreduce") < names.index("threads")


@pytest.mark.parametrize("name", ["threads", "allreduce"])
def test_a_section_for_other_graphs_is_refused(name: str) -> None:
    plan = put(None, "threads", THREADS, HERE, PLAIN)
    graphs = {"other": PLAIN.steps[0].nodes}
    elsewhere = synthetic.profile(HERE, PLAIN.ops, graphs)
    with pytest.raises(UsageError, match="other graphs"):
        put(plan, name, SECTIONS[name], HERE, elsewhere)


def test_settings_of_the_profiled_job_come_with_what_was_planned_from_it() -> None:
    assert put(None, "threads", THREADS, HERE, PLAIN).of(SettingsPlan) is None
    plan = put(None, "threads", THREADS, HERE, under(FUSED))
    assert plan.of(SettingsPlan) == FUSED
    alone = put(None, "settings", FUSED, HERE, framework=Framework("tensorflow", "2", "", ""))
    both = put(alone, "threads", THREADS, HERE, under(FUSED))
    assert (both.of(SettingsPlan), both.of(Threads)) == (FUSED, THREADS)
    assert both.framework == PLAIN.framework


@pytest.mark.parametrize("name", ["threads", "allreduce"])
def test_what_was_planned_without_the_settings_of_a_plan_does_not_go_into_it(name: str) -> None:
    alone = put(None, "settings", FUSED, HERE)
    with pytest.raises(UsageError, match="runs the job with batch_norm=fused, unlike") as refused:
        put(alone, name, SECTIONS[name], HERE, PLAIN)
    assert "--plan" in str(refused.value.remedy)
    with pytest.raises(UsageError, match="runs the job without batch_norm=fused, unlike"):
        put(put(None, "settings", TCMALLOC, HERE), name, SECTIONS[name], HERE, under(FUSED))
    # settings that leave the graph as it is do not matter
    assert put(put(None, "settings", TCMALLOC, HERE), name, SECTIONS[name], HERE, PLAIN)


def test_settings_do_not_take_the_graph_away_from_planned_ops() -> None:
    plan = put(None, "threads", THREADS, HERE, PLAIN)
    with pytest.raises(UsageError, match="a job with batch_norm=fused has other graphs"):
        put(plan, "settings", FUSED, HERE)
    assert put(plan, "settings", TCMALLOC, HERE).of(SettingsPlan) == TCMALLOC
    # one setting for all ops is met in any graph
    assert put(put(None, "threads", UNIFORM, HERE, PLAIN), "settings", FUSED, HERE)
    # what was planned under settings does not do without them
    with pytest.raises(UsageError, match="a job without batch_norm=fused has other graphs"):
        require_fitting(put(None, "threads", THREADS, HERE, under(FUSED)), "settings", None)


def test_a_plan_is_for_any_graph_when_settings_may_change_it_and_no_op_is_named() -> None:
    assert for_any_graph(bare(HERE, sections={"settings": FUSED}))
    assert for_any_graph(bare(HERE, sections={"settings": FUSED, "threads": UNIFORM}))
    assert not for_any_graph(bare(HERE, sections={"settings": FUSED, "threads": THREADS}))
    assert not for_any_graph(bare(HERE, sections={"threads": UNIFORM}))
    assert not for_any_graph(bare(HERE, sections={"settings": tuned()}))


def test_a_section_nobody_here_knows_is_named_and_refused_or_left_out(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    made = msgspec.to_builtins(put(None, "threads", THREADS, HERE, PLAIN))
    made["sections"]["weather"] = {"rain": 1}
    path.write_bytes(msgspec.json.encode(made))
    with pytest.raises(UsageError, match=r"sections\.weather: unknown planner 'weather'"):
        load(path)
    left: list[str] = []
    plan = load(path, left.append)
    assert list(plan.sections) == ["threads"]
    assert "skipping section 'weather'" in left[0]


def test_faults_of_all_sections_are_told_at_once() -> None:
    sections = {
        "threads": msgspec.structs.replace(THREADS, small=-1.0),
        "allreduce": msgspec.structs.replace(RANKS, ranks=0),
    }
    faults = check(bare(HERE, signatures=("signature-train",), sections=sections))
    assert any(fault.startswith("sections.threads.small") for fault in faults)
    assert any(fault.startswith("sections.allreduce.ranks") for fault in faults)


def test_another_machine_is_told_apart() -> None:
    plan = bare(HERE)
    require_machine(plan, HERE)
    with pytest.raises(UsageError, match=r"2 cores of synthetic.*this machine has 8 cores"):
        require_machine(plan, synthetic.machine(8))
    with pytest.raises(UsageError, match=r"quota of 1\.5"):
        require_machine(plan, msgspec.structs.replace(HERE, quota=1.5))


def test_a_plan_of_the_first_schema_keeps_what_it_says(tmp_path: Path) -> None:
    section = msgspec.to_builtins(THREADS)
    old = msgspec.to_builtins(bare(HERE)) | {"schema": "dltune.plan/1", "tensorflow": "2.21.0"}
    old = {k: v for k, v in old.items() if k not in ("framework", "sections")}
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(old | {"threads": section, "io": None}))
    plan = load(path)
    assert isinstance(plan, Plan)
    assert plan.schema == "dltune.plan/2"
    assert plan.framework == Framework("tensorflow", "2.21.0", "", "")
    assert plan.sections == {"threads": THREADS}


def test_what_was_measured_beside_other_settings_is_remarked() -> None:
    plan = put(None, "settings", TCMALLOC, HERE)
    assert unlike(plan, PLAIN, "threads") == "with allocator=tcmalloc"
    assert unlike(plan, under(TCMALLOC), "threads") == ""
    assert unlike(put(None, "threads", UNIFORM, HERE, PLAIN), PLAIN, "threads") == ""


def test_tune_leaves_what_it_does_not_know_as_it_was() -> None:
    plan = put(None, "threads", UNIFORM, HERE, PLAIN)
    framework = Framework("tensorflow", "2", "", "")
    tuned = put(plan, "settings", FUSED, HERE, framework=framework)
    assert (tuned.created, tuned.framework) == (plan.created, PLAIN.framework)
    assert put(None, "settings", FUSED, HERE, framework=framework).framework == framework


def test_names_of_sections_are_shown_and_never_obeyed(tmp_path: Path) -> None:
    made = msgspec.to_builtins(bare(HERE))
    made["sections"]["\x1b[31mred\n"] = {}
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(made))
    with pytest.raises(UsageError) as refused:
        load(path)
    assert "\x1b" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_sample_of_the_first_schema_has_the_digest_that_benches_know() -> None:
    sample = Path(__file__).parents[1] / "schemas" / "samples" / "plan-1.json"
    plan = load(sample)
    assert plan.of(SettingsPlan) is None
    assert files.digest(plan) == files.digest_of(first(plan))
