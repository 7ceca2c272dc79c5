"""A step whose time goes to its ops, as it should."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.parts import part, unrecorded
from dltune.documents.finding import Finding
from dltune.documents.profile import PartName
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# of the wall time, outside ops: to remove it all would gain 1.11x, about what spreads allow to be
# seen. Such a part is pure loss, while ops can only be made faster
WASTE = 0.1
ELSE: tuple[PartName, ...] = ("executor", "input", "communication", "python")


@rule(
    "time-in-ops",
    "ops",
    summary="The step spends its time in its ops, as it should.",
    fix="Nothing is wrong; `dltune plan threads` can choose a better thread count for each op.",
    frameworks=("tensorflow",),
)
def find(seen: Seen) -> Iterator[Finding]:
    profile = seen.profile.profile if seen.profile else None
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
