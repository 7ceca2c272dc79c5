"""Sections of several planners in one plan: of core, and of the systems that are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import synthetic
from installed import SYSTEMS
from plan_sections import FUSED, HERE, PLAIN, TCMALLOC, THREADS, under

from dltune.base.errors import UsageError
from dltune.plan.plan import load_plan, merge_section, new_plan, ordered_sections, plan_faults
from dltune.schemas.profile import Profile

SECTIONS: dict[str, Any] = {"threads": THREADS}
if "lmdb" in SYSTEMS:
    from dltune.systems.lmdb.section import IoPlan

    SECTIONS["io"] = IoPlan("", (), ())
if "ranks" in SYSTEMS:
    from dltune.systems.ranks.allreduce.section import AllreducePlan

    SECTIONS["allreduce"] = AllreducePlan(
        "", "gloo", 2, 2, None, None, None, None, None, False, (), ()
    )


def of(name: str) -> Profile | None:
    """What a section of that planner is decided from."""
    return PLAIN if name in ("threads", "allreduce") else None


@pytest.mark.parametrize("name", [*SECTIONS, "settings"])
def test_no_planner_adds_to_a_plan_for_another_machine(name: str) -> None:
    section = SECTIONS.get(name, FUSED)
    for other, there in {**SECTIONS, "settings": TCMALLOC}.items():
        elsewhere = merge_section(None, other, there, synthetic.machine(4))
        with pytest.raises(UsageError, match=r"with 4 cores, but the new section is for .* with 2"):
            merge_section(elsewhere, name, section, HERE, of(name))


@pytest.mark.parametrize("first", SECTIONS)
@pytest.mark.parametrize("second", SECTIONS)
def test_each_two_sections_stand_in_one_plan_whichever_comes_first(
    first: str, second: str, tmp_path: Path
) -> None:
    one = merge_section(None, first, SECTIONS[first], HERE, of(first))
    both = merge_section(one, second, SECTIONS[second], HERE, of(second))
    assert set(both.sections) == {first, second}
    if of(first) or of(second):
        assert both.signatures == ("signature-train",)
        assert both.framework == PLAIN.framework
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(both))
    assert load_plan(tmp_path / "plan.json") == both


def test_sections_take_effect_in_one_order() -> None:
    plan = new_plan(HERE, sections={**SECTIONS, "settings": FUSED})
    names = [
        name for name, _ in ordered_sections(plan) if name in ("settings", "allreduce", "threads")
    ]
    ranks = ["allreduce"] if "ranks" in SYSTEMS else []
    assert names == ["settings", *ranks, "threads"]


@pytest.mark.parametrize("name", [*filter(of, SECTIONS)])
def test_a_section_for_other_graphs_is_refused(name: str) -> None:
    plan = merge_section(None, "threads", THREADS, HERE, PLAIN)
    graphs = {"other": PLAIN.steps[0].nodes}
    elsewhere = synthetic.profile(HERE, PLAIN.ops, graphs)
    with pytest.raises(UsageError, match="other graphs"):
        merge_section(plan, name, SECTIONS[name], HERE, elsewhere)


@pytest.mark.parametrize("name", [*filter(of, SECTIONS)])
def test_what_was_planned_without_the_settings_of_a_plan_does_not_go_into_it(name: str) -> None:
    alone = merge_section(None, "settings", FUSED, HERE)
    with pytest.raises(UsageError, match="runs the job with batch_norm=fused, unlike") as refused:
        merge_section(alone, name, SECTIONS[name], HERE, PLAIN)
    assert "--plan" in str(refused.value.remedy)
    with pytest.raises(UsageError, match="runs the job without batch_norm=fused, unlike"):
        merge_section(
            merge_section(None, "settings", TCMALLOC, HERE),
            name,
            SECTIONS[name],
            HERE,
            under(FUSED),
        )
    # settings that leave the graph as it is do not matter
    assert merge_section(
        merge_section(None, "settings", TCMALLOC, HERE), name, SECTIONS[name], HERE, PLAIN
    )


def test_faults_of_all_sections_are_told_at_once() -> None:
    wrong = {"threads": ("small", -1.0), "allreduce": ("ranks", 0)}
    sections = {
        name: msgspec.structs.replace(SECTIONS[name], **{field: value})
        for name, (field, value) in wrong.items()
        if name in SECTIONS
    }
    faults = plan_faults(new_plan(HERE, signatures=("signature-train",), sections=sections))
    for name in sections:
        assert any(fault.startswith(f"sections.{name}.{wrong[name][0]}") for fault in faults)
