"""A plan on one job: what is refused before the job starts."""

from __future__ import annotations

import pytest
import synthetic

from dltune.base.errors import UsageError
from dltune.job import protocol
from dltune.plan.plan import Composition, new_plan
from dltune.plan.settings.enforce import EnforcedSettings
from dltune.plan.threads.enforce import EnforcedThreads
from dltune.schemas.plan import Prediction, Threads, Uniform
from dltune.schemas.settings import SettingsPlan

PYTHON = protocol.Python(7, ["python"], "3.11", {})


def composed() -> Composition:
    """A plan with sections on settings and threads."""
    machine = synthetic.machine(4)
    predicted = (Prediction("uniform 2x1", 1.0, 1.0, 1.0),)
    threads = Threads("uniform 2x1", Uniform(2, 1), False, False, 0.0, (), predicted)
    settings = SettingsPlan(("python",), (), "exact", None, None, (), (), 1.0, None)
    plan = new_plan(machine, sections={"settings": settings, "threads": threads})
    return Composition(plan, machine, ("python",), {}, partial=False, say=print)


def test_a_plan_without_sections_is_refused() -> None:
    machine = synthetic.machine(4)
    with pytest.raises(UsageError, match="the plan has no section"):
        Composition(new_plan(machine), machine, ("python",), {}, partial=False, say=print)


def test_sections_with_different_values_of_one_key_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    composition = composed()
    monkeypatch.setattr(EnforcedThreads, "answer", lambda *_: {"cpus": [0, 1]})
    monkeypatch.setattr(EnforcedSettings, "answer", lambda *_: {"cpus": [0, 1]})
    assert composition.answer(PYTHON)["cpus"] == [0, 1]
    monkeypatch.setattr(EnforcedSettings, "answer", lambda *_: {"cpus": [0]})
    with pytest.raises(UsageError) as refused:
        composition.answer(PYTHON)
    assert str(refused.value).startswith(
        "the plan's sections 'settings' and 'threads' give process 7 of the job different values "
        "of 'cpus'"
    )
    assert refused.value.remedy == "remove one of these sections from the plan"


def test_sections_with_adapters_have_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    composition = composed()
    monkeypatch.setattr(EnforcedThreads, "answer", lambda *_: {"adapters": [{"module": "b"}]})
    monkeypatch.setattr(EnforcedSettings, "answer", lambda *_: {"adapters": [{"module": "a"}]})
    reply = composition.answer(PYTHON)
    assert reply["adapters"] == [{"module": "a"}, {"module": "b"}]


class Plugin:
    """A process that has just said hello."""

    pid = 7
    hello = protocol.Plugin(7, "2.21.0", "git", "3.11")


def test_what_sections_want_recorded_is_ordered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all graphs together, unless a section orders the recording itself."""
    composition = composed()
    monkeypatch.setattr(EnforcedSettings, "recorded", ("a", "b"))
    lines = composition.greet(Plugin())  # type: ignore[arg-type]
    assert not [line for line in lines if line.startswith("alternate\t")]
    monkeypatch.setattr(EnforcedThreads, "recorded", ("b", "c"))
    monkeypatch.setattr(EnforcedThreads, "orders_recording", False)
    lines = composition.greet(Plugin())  # type: ignore[arg-type]
    assert len([line for line in lines if line.startswith("alternate\t")]) == 1
    targets = [line.removeprefix("target\t") for line in lines if line.startswith("target\t")]
    assert targets == ["a", "b", "c"] * 2  # the executions that are recorded, and the others
