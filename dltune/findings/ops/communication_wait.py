"""Steps that wait for other processes."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.parts import part, wall
from dltune.documents.finding import Finding, Gain
from dltune.findings.seen import Seen

# of the wall time: to remove it all would gain 1.11x, about what spreads allow to be seen
SHARE = 0.1


def find(seen: Seen) -> Iterator[Finding]:
    share = part(seen.profile.profile, "communication") if seen.profile else 0.0
    if seen.profile is None or share < SHARE:
        return
    yield Finding(
        "communication-wait",
        f"ops wait for other processes in {share:.0%} of the wall time",
        "nothing else ran meanwhile",
        "fewer and larger messages; dltune plan transfers for parameter servers, dltune plan "
        "allreduce for Horovod",
        seconds=share * wall(seen.profile.profile),
        share=share,
        gain=Gain(0.0, share),
        sure="measured",
    )
