"""Rounds of real commands until decided, or until the budget is spent."""

from __future__ import annotations

import sys
from pathlib import Path

import decided
import pytest

from dltune.base.errors import UsageError
from dltune.gate.checkouts import Side
from dltune.gate.limits import Config, Limit
from dltune.gate.measurement import measure

PAGES = "x = bytearray({} * 4096)\nfor i in range({}): x[i * 4096] = 1"


def sides(base: str, head: str) -> list[Side]:
    return [
        Side(name, name, [sys.executable, "-c", script], Path("/"))
        for name, script in (("base", base), ("head", head))
    ]


def config(*limits: Limit, **changed) -> Config:
    return Config(limits=limits, source="gate.toml", **changed)


def held(base: str, head: str, found: Config, **more):
    return measure(sides(base, head), decided.HERE, found, tell=lambda _: None, **more)


def test_what_differs_plainly_is_decided() -> None:
    found = held(
        "pass",
        PAGES.format(20_000, 20_000),
        config(
            Limit("page_faults", ratio=1.5),
            Limit("peak_bytes", ratio=1.5, at_most=1e12),
            Limit("context_switches", ratio=1e6),
        ),
    )
    outcomes = {(v.metric, v.over): v.outcome for v in found.verdicts}
    assert outcomes == {
        ("page_faults", "ratio"): "fail",
        ("peak_bytes", "ratio"): "fail",
        ("peak_bytes", "value"): "pass",
        ("context_switches", "ratio"): "pass",
    }
    assert found.kind == "whole"
    assert found.rounds <= 15


def test_a_spent_budget_leaves_it_undecided() -> None:
    found = held("pass", "pass", config(Limit("page_faults", ratio=1.0), budget=1e-6))
    assert [v.outcome for v in found.verdicts] == ["undecided"]
    assert found.rounds == 2
    assert any("budget" in note for note in found.notes)  # a busy machine adds its own


def test_what_cannot_be_measured_does_not_hold_up_the_rest() -> None:
    found = held(
        *("pass", "pass"),
        config(Limit("page_faults", ratio=2.0), Limit("background_share", at_most=0.5)),
    )
    assert {v.metric: v.outcome for v in found.verdicts} == {
        "page_faults": "pass",
        "background_share": "undecided",
    }
    assert "no Horovod report is configured" in found.verdicts[1].why


def test_a_command_that_fails_in_one_checkout_only() -> None:
    for name, scripts in (("base", ("1/0", "pass")), ("head", ("pass", "1/0"))):
        with pytest.raises(UsageError, match=f"in {name}: the command ended with exit code 1"):
            held(*scripts, config(Limit("time", ratio=1.5)))


def test_metrics_that_no_command_shows_together() -> None:
    with pytest.raises(UsageError, match="one gate cannot measure both"):
        held("pass", "pass", config(Limit("time", ratio=1.1), Limit("step_time", ratio=1.1)))
    with pytest.raises(UsageError, match="step_time cannot be measured for a command timed as"):
        held("pass", "pass", config(Limit("step_time", ratio=1.1), timed="whole"))


def test_steps_are_asked_for_where_there_are_none() -> None:
    with pytest.raises(UsageError, match="in base: the job neither imported TensorFlow"):
        held("pass", "pass", config(Limit("step_time", ratio=1.1)))


def test_one_side_against_what_was_before() -> None:
    limit = config(Limit("page_faults", ratio=2.0))
    side = sides("pass", "pass")[1:]
    recorded = measure(side, decided.HERE, limit, tell=lambda _: None, rounds=9)
    values = recorded.samples["page_faults"].head
    assert (len(values), recorded.verdicts) == (9, [])
    found = measure(side, decided.HERE, limit, tell=lambda _: None, before={"page_faults": values})
    assert [v.outcome for v in found.verdicts] == ["pass"]
    tenth = {"page_faults": [v / 10 for v in values]}
    found = measure(side, decided.HERE, limit, tell=lambda _: None, before=tenth)
    assert [v.outcome for v in found.verdicts] == ["fail"]
