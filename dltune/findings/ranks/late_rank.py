"""A rank that the others wait for: it is the last to have its gradients."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import milliseconds

# share of negotiations for which one rank was the last, over its even share
ALWAYS_LATE = 1.5


@rule(
    "late-rank",
    "ranks",
    summary="One rank is the last to have its gradients in most steps.",
    fix="Balance the rank's input, batch and cores.",
    order=2,
)
def find(seen: Seen) -> Iterator[Finding]:
    timeline = seen.horovod.timeline if seen.horovod else None
    if seen.horovod is None or timeline is None or not timeline.late:
        return
    rank, share = max(timeline.late.items(), key=lambda one: one[1])
    sizes = [one.size for one in seen.horovod.ranks]
    # of the timeline alone: a rank that never was the last is not in it
    even = 1.0 / max(sizes or [2, *(int(one) + 1 for one in timeline.late)])
    if share > min(ALWAYS_LATE * even, 0.9) and timeline.negotiation.samples >= 20:
        yield Finding(
            title=f"rank {rank} is the last to have its gradients {share:.0%} of the time",
            evidence=f"of {timeline.negotiation.samples} negotiations (an even share is "
            f"{even:.0%}); "
            f"they take {milliseconds(timeline.negotiation.median)} at the median, "
            f"{milliseconds(timeline.negotiation.p95)} at the 95th percentile",
            fix="check its extra work: its input, other users of its cores, the size of its batch",
        )
