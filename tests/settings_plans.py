"""Plans of settings alone, as `dltune tune` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dltune.plan.plan import load_plan, new_plan
from dltune.schemas.settings import Choice, SettingsPlan
from dltune.system import topology


def written(path: Path, job: Sequence[str], *chosen: tuple[str, str]) -> Path:
    choices = tuple(Choice(*item) for item in chosen)
    section = SettingsPlan(tuple(job), choices, "rounding", None, None, (), (), 1.0, None)
    made = new_plan(topology.local(), sections={"settings": section})
    path.write_bytes(msgspec.json.encode(made))
    return path


def section(path: Path) -> SettingsPlan:
    """Of a plan that has one."""
    found = load_plan(path).of(SettingsPlan)
    assert found is not None
    return found
