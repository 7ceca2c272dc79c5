"""Plans as a whole: several sections in one, for one machine and one set of graphs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import synthetic
from plan_sections import FUSED, HERE, PLAIN, TCMALLOC, THREADS, UNIFORM, tuned, under

from dltune.base.errors import UsageError
from dltune.plan.plan import (
    describe_differences,
    is_graph_independent,
    load_plan,
    merge_section,
    new_plan,
    require_fitting,
    require_machine,
)
from dltune.schemas.plan import Threads
from dltune.schemas.profile import Framework
from dltune.schemas.settings import SettingsPlan


def test_settings_of_the_profiled_job_come_with_what_was_planned_from_it() -> None:
    assert merge_section(None, "threads", THREADS, HERE, PLAIN).of(SettingsPlan) is None
    plan = merge_section(None, "threads", THREADS, HERE, under(FUSED))
    assert plan.of(SettingsPlan) == FUSED
    alone = merge_section(
        None, "settings", FUSED, HERE, framework=Framework("tensorflow", "2", "", "")
    )
    both = merge_section(alone, "threads", THREADS, HERE, under(FUSED))
    assert (both.of(SettingsPlan), both.of(Threads)) == (FUSED, THREADS)
    assert both.framework == PLAIN.framework


def test_settings_do_not_take_the_graph_away_from_planned_ops() -> None:
    plan = merge_section(None, "threads", THREADS, HERE, PLAIN)
    with pytest.raises(UsageError, match="a job with batch_norm=fused has other graphs"):
        merge_section(plan, "settings", FUSED, HERE)
    assert merge_section(plan, "settings", TCMALLOC, HERE).of(SettingsPlan) == TCMALLOC
    # one setting for all ops is met in any graph
    assert merge_section(
        merge_section(None, "threads", UNIFORM, HERE, PLAIN), "settings", FUSED, HERE
    )
    # what was planned under settings does not do without them
    with pytest.raises(UsageError, match="a job without batch_norm=fused has other graphs"):
        require_fitting(
            merge_section(None, "threads", THREADS, HERE, under(FUSED)), "settings", None
        )


def test_a_plan_is_for_any_graph_when_settings_may_change_it_and_no_op_is_named() -> None:
    assert is_graph_independent(new_plan(HERE, sections={"settings": FUSED}))
    assert is_graph_independent(new_plan(HERE, sections={"settings": FUSED, "threads": UNIFORM}))
    assert not is_graph_independent(
        new_plan(HERE, sections={"settings": FUSED, "threads": THREADS})
    )
    assert not is_graph_independent(new_plan(HERE, sections={"threads": UNIFORM}))
    assert not is_graph_independent(new_plan(HERE, sections={"settings": tuned()}))


def test_a_section_nobody_here_knows_is_named_and_refused_or_left_out(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    made = msgspec.to_builtins(merge_section(None, "threads", THREADS, HERE, PLAIN))
    made["sections"]["weather"] = {"rain": 1}
    path.write_bytes(msgspec.json.encode(made))
    with pytest.raises(UsageError, match=r"sections\.weather: .* planner 'weather' is not"):
        load_plan(path)
    left: list[str] = []
    plan = load_plan(path, left.append)
    assert list(plan.sections) == ["threads"]
    assert "skipping section 'weather'" in left[0]


def test_another_machine_is_told_apart() -> None:
    plan = new_plan(HERE)
    require_machine(plan, HERE)
    with pytest.raises(UsageError, match=r"2 cores of synthetic.*this machine has 8 cores"):
        require_machine(plan, synthetic.machine(8))
    with pytest.raises(UsageError, match=r"quota of 1\.5"):
        require_machine(plan, msgspec.structs.replace(HERE, quota=1.5))


def test_what_was_measured_beside_other_settings_is_remarked() -> None:
    plan = merge_section(None, "settings", TCMALLOC, HERE)
    assert describe_differences(plan, PLAIN, "threads") == "with allocator=tcmalloc"
    assert describe_differences(plan, under(TCMALLOC), "threads") == ""
    assert (
        describe_differences(merge_section(None, "threads", UNIFORM, HERE, PLAIN), PLAIN, "threads")
        == ""
    )


def test_tune_leaves_what_it_does_not_know_as_it_was() -> None:
    plan = merge_section(None, "threads", UNIFORM, HERE, PLAIN)
    framework = Framework("tensorflow", "2", "", "")
    tuned = merge_section(plan, "settings", FUSED, HERE, framework=framework)
    assert (tuned.created, tuned.framework) == (plan.created, PLAIN.framework)
    assert merge_section(None, "settings", FUSED, HERE, framework=framework).framework == framework


def test_names_of_sections_are_shown_and_never_obeyed(tmp_path: Path) -> None:
    made = msgspec.to_builtins(new_plan(HERE))
    made["sections"]["\x1b[31mred\n"] = {}
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(made))
    with pytest.raises(UsageError) as refused:
        load_plan(path)
    assert "\x1b" not in str(refused.value)
    assert "\n" not in str(refused.value)
