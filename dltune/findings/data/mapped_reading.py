"""What a reader through a mapping, as LMDB is one, reaches of what the storage gives.

The thesis' first comparison (section 3.1.2).
"""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import rate, share

# of the ceiling: with less the way of reading is at fault, and not the storage
NEAR = 0.8


@rule(
    "mapped-reading",
    "data",
    summary="The rate of one reader through a memory mapping, as in LMDB, compared with the "
    "storage's limit.",
    fix="Read with several requests at once, at exact offsets.",
    order=7,
)
def find(seen: Seen) -> Iterator[Finding]:
    experiment = seen.io.experiment if seen.io else None
    present = (
        next((r for r in experiment.strided if r.method == "mmap"), None) if experiment else None
    )
    if experiment is None or present is None:
        return
    ceiling, reached = experiment.ceiling, experiment.share_of_ceiling
    near = reached >= NEAR
    yield Finding(
        title=f"one sequential reader through a mapping reaches {'' if near else 'only '}"
        f"{share(reached)} of the storage's rate",
        evidence=f"{rate(present.throughput.median)} through a mapping, "
        f"{rate(ceiling.throughput.median)} with {ceiling.requests}",
        fix=None if near else f"read with {ceiling.requests}, at exact offsets",
        confidence="measured",
    )
