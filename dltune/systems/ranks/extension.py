"""What the system for jobs of several ranks registers."""

from __future__ import annotations

from pathlib import Path

from dltune.extensions import Command, DocumentKind, Extension, Hook

_PACKAGE = Path(__file__).parent.parent.parent

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
            "dltune.documents.horovod:load",
            ("ranks",),
            "dltune.horovod.view:view",
            is_evidence=True,
        ),
    },
    probes=("dltune.horovod.watch.probe:start",),
    settings=(
        "dltune.planners.settings.space.ranks:HOROVOD",
        "dltune.planners.settings.space.ranks:MPI_YIELD",
        "dltune.planners.settings.space.ranks:DDP_BUCKET",
        "dltune.planners.settings.space.ranks:RANKS",
    ),
    hooks=(
        Hook("_dltune_horovod", (str(_PACKAGE / "horovod" / "inject"),), ("horovod",)),
        Hook(
            "_dltune_torch_buckets",
            (str(_PACKAGE / "pytorch" / "inject"),),
            ("torch",),
            ("ddp_bucket",),
        ),
    ),
)
