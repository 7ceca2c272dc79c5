"""A step that spends its time in its ops, as it should."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.step_parts import part, unrecorded
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.schemas.profile import PartName

# share of the wall time of a part outside ops; its removal gains 1.11x, about the spread of steps
WASTE = 0.1
ELSE: tuple[PartName, ...] = ("executor", "input", "communication", "python")


@rule(
    "time-in-ops",
    "ops",
    summary="The step spends its time in its ops, as it should.",
    fix="Nothing is wrong; `dltune plan threads` can choose a better thread count for each op.",
    frameworks=("tensorflow",),
)
def find(evidence: Evidence) -> Iterator[Finding]:
    profile = evidence.profile.profile if evidence.profile else None
    if profile is None or not part(profile, "ops"):
        return
    share = part(profile, "ops")
    if all(part(profile, name) < WASTE for name in ELSE):
        yield Finding(
            title=f"the step spends {share:.0%} of its wall time in ops "
            f"({share * unrecorded(profile) * 1e3:.3g} ms)",
            evidence="little time is lost outside ops; `dltune plan threads` chooses their "
            "thread counts and which of them run side by side",
            confidence="measured",
        )
