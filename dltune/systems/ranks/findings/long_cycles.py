"""Horovod's cycles, if they are so long that gradients wait for the next cycle."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import milliseconds
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.findings import report

# length of a cycle relative to the transfer of a batch, and the share of a cycle that a batch waits
LONG_CYCLE, WAITS = 2.0, 0.5


@rule(
    "long-cycles",
    "ranks",
    summary="Gradients wait for Horovod's next cycle.",
    fix="Make cycles shorter (HOROVOD_CYCLE_TIME).",
    order=3,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    timeline = report.timeline(evidence)
    if timeline is None or (cycles := timeline.cycles) is None:
        return
    transfer, queue = timeline.transfer.median, timeline.queue.median
    if not transfer or cycles.setting <= LONG_CYCLE * transfer:
        return
    if queue is not None and queue > WAITS * cycles.setting:
        yield Finding(
            title="gradients wait for the next cycle for longer than a transfer takes",
            evidence=f"HOROVOD_CYCLE_TIME is {cycles.setting * 1e3:g} ms, a transfer takes "
            f"{milliseconds(transfer)} and starts after {milliseconds(queue)}",
            fix="make cycles shorter: lower HOROVOD_CYCLE_TIME",
        )
