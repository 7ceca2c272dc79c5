"""What the system for jobs of several ranks registers."""

from __future__ import annotations

from dltune.extensions import Command, DocumentKind, Extension

EXTENSION = Extension(
    name="ranks",
    commands={
        "horovod-report": Command(
            "Measure",
            "Show how communication threads use the cores of ranks.",
            "dltune.cli.horovod_report:command",
        ),
    },
    planners={
        "allreduce": "dltune.planners.allreduce.planner:PLANNER",
        "buckets": "dltune.planners.buckets.planner:PLANNER",
    },
    rules=("dltune.findings.ranks",),
    documents={
        "dltune.horovod": DocumentKind(
            "dltune.documents.horovod:load", ("ranks",), "dltune.report.kinds.horovod:show"
        ),
    },
    settings=(
        "dltune.planners.settings.space.ranks:HOROVOD",
        "dltune.planners.settings.space.ranks:MPI_YIELD",
        "dltune.planners.settings.space.ranks:DDP_BUCKET",
        "dltune.planners.settings.space.ranks:RANKS",
    ),
)
