"""The rate of a reader through a mapping, as in LMDB, compared with the rate of the storage.

This is the first comparison of the thesis (section 3.1.2).
"""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import rate, share
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding

# share of the storage's rate; below it, the way of reading is the cause, not the storage
NEAR = 0.8


@rule(
    "mapped-reading",
    "data",
    summary="The rate of one reader through a memory mapping, as in LMDB, compared with the "
    "storage's limit.",
    fix="Read with several requests at once, at exact offsets.",
    order=7,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    experiment = evidence.experiment
    runs = experiment.strided if experiment else ()
    mapped = next((run for run in runs if run.method == "mmap"), None)
    if experiment is None or mapped is None:
        return
    ceiling, reached = experiment.ceiling, experiment.share_of_ceiling
    is_near = reached >= NEAR
    yield Finding(
        title=f"one sequential reader through a mapping reaches {'' if is_near else 'only '}"
        f"{share(reached)} of the storage's rate",
        evidence=f"{rate(mapped.throughput.median)} through a mapping, "
        f"{rate(ceiling.throughput.median)} with {ceiling.requests}",
        fix=None if is_near else f"read with {ceiling.requests}, at exact offsets",
        confidence="measured",
    )
