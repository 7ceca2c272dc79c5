"""A rank that is the last to have its gradients, so that the others wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import milliseconds
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.findings import report

# share of negotiations in which a rank is the last, relative to an even share
OFTEN_LATE = 1.5


@rule(
    "late-rank",
    "ranks",
    summary="One rank is the last to have its gradients in most steps.",
    fix="Balance the rank's input, batch and cores.",
    order=2,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    timeline = report.timeline(evidence)
    if timeline is None or not timeline.late:
        return
    latest, share = max(timeline.late.items(), key=lambda item: item[1])
    sizes = [rank.size for rank in report.ranks(evidence)]
    # the timeline names only ranks that were the last at least once
    even = 1.0 / max(sizes or [2, *(int(number) + 1 for number in timeline.late)])
    if share > min(OFTEN_LATE * even, 0.9) and timeline.negotiation.samples >= 20:
        yield Finding(
            title=f"rank {latest} is the last to have its gradients {share:.0%} of the time",
            evidence=f"of {timeline.negotiation.samples} negotiations (an even share is "
            f"{even:.0%}); they take {milliseconds(timeline.negotiation.median)} at the median, "
            f"{milliseconds(timeline.negotiation.p95)} at the 95th percentile",
            fix="check its extra work: its input, other users of its cores, the size of its batch",
        )
