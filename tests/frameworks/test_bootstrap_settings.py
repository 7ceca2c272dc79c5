"""The dispatch of settings in the job's Python, on packages that stand for those of the job."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import msgspec
import pytest

from dltune import extensions
from dltune.job import protocol
from dltune.job.launch import BOOTSTRAP

MODULES = [hook._asdict() for hook in extensions.hooks() if hook.settings]


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for folder in (str(BOOTSTRAP), *(folder for one in MODULES for folder in one["folders"])):
        monkeypatch.syspath_prepend(folder)
    file = BOOTSTRAP / "_dltune_settings.py"
    spec = importlib.util.spec_from_file_location("settings_here", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def heard(told: list[dict]) -> list[protocol.Setting]:
    decoded = [protocol.decode(msgspec.json.encode(message)) for message in told]
    assert all(isinstance(message, protocol.Setting) for message in decoded)
    return decoded  # type: ignore[return-value]


def test_what_grows_is_told_again(settings):
    told: list[dict] = []
    report = settings.Report("batch_norm", "fused", told.append)
    report.did = "{count} layers"
    report.acted()
    report.left("a", "renorm")
    report.left("b", "renorm")
    report.left("b", "renorm")
    report.acted(2)
    report.first(ModuleType("tensorflow"))
    assert [(m.count, m.did, m.left) for m in heard(told)] == [
        (1, "1 layers", []),
        (1, "1 layers", ["a: renorm"]),
        (1, "1 layers", ["a, b: renorm"]),
        (3, "3 layers", ["a, b: renorm"]),
    ]


def test_many_with_one_reason_stand_in_one_sentence(settings):
    told: list[dict] = []
    report = settings.Report("batch_norm", "fused", told.append)
    for index in range(7):
        report.left(f"bn{index}", "masked")
    assert heard(told)[-1].left == ["bn0, bn1, bn2 and 4 more: masked"]


def test_nothing_met_is_told_once_tensorflow_is_there(settings):
    told: list[dict] = []
    report = settings.Report("batch_norm", "fused", told.append)
    report.first(ModuleType("tensorflow"))
    report.first(ModuleType("tensorflow"))
    assert [(m.count, m.value) for m in heard(told)] == [(0, "fused")]


def test_a_setting_of_a_newer_dltune_is_told_as_unknown(settings):
    told: list[dict] = []
    after = list(settings.hooks({"warp": "on"}, MODULES, told.append))
    assert [module for module, _ in after] == ["tensorflow", "torch"]
    (message,) = heard(told)
    assert (message.count, message.setting) == (0, "warp")
    assert "does not support this setting" in message.left[0]


def test_a_hook_that_fails_is_told_and_fails_nothing(settings, tmp_path, monkeypatch):
    told: list[dict] = []

    (tmp_path / "broken_hook.py").write_text(
        "def broken(module):\n    raise AttributeError('no Layer')\n"
        "def warp(report):\n    yield 'keras', broken\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = {"module": "broken_hook", "packages": ["keras"], "settings": ["warp"]}
    for name, hook in settings.hooks({"warp": "on"}, [module], told.append):
        hook(ModuleType(name))
    (message,) = heard(told)
    assert message.left == ["keras: the setting failed: AttributeError: no Layer"]


def test_a_dltune_that_does_not_answer_is_told_no_more(settings, monkeypatch):
    told: list[dict] = []
    clock = iter([0.0, 31.0])
    monkeypatch.setattr("_dltune_report.time.monotonic", lambda: next(clock))
    report = settings.Report("batch_norm", "fused", told.append)
    report.acted()
    report.acted()
    assert len(told) == 1
