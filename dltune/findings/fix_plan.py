"""The fixes of a diagnosis that dltune can apply, as a section of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.schemas.diagnosis import Diagnosis
from dltune.schemas.settings import Choice, SettingsPlan


def make_fix_plan(diagnosis: Diagnosis, job: Sequence[str]) -> SettingsPlan | None:
    """Return a plan with the settings that findings apply; None if there are none. If findings
    choose different values of a setting, the most costly finding decides. No setting changes
    results by more than rounding."""
    chosen: dict[str, Choice] = {}
    for finding in diagnosis.findings:
        for choice in finding.apply:
            chosen.setdefault(choice.setting, choice)
    if not chosen:
        return None
    return SettingsPlan(
        command=tuple(job),
        chosen=tuple(chosen.values()),
        kind="rounding",
        whole=None,
        recommended=None,
        effects=(),
        untried=(),
        seconds=diagnosis.seconds,
        partial=None,
        overrides=True,
    )
