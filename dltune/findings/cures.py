"""What dltune can apply by itself of a diagnosis' cures, as a section of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.documents.diagnosis import Diagnosis
from dltune.documents.sections.settings import Choice, SettingsPlan


def cures(diagnosis: Diagnosis, job: Sequence[str]) -> SettingsPlan | None:
    """The choices of its findings, of each setting that of the most costly one; None without any.

    Findings choose nothing that changes results by more than rounding.
    """
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
