"""Registrations of the system for jobs of several ranks."""

from __future__ import annotations

from pathlib import Path

from dltune.extensions import Command, DocumentKind, Extension, Hook

_INJECTED = str(Path(__file__).parent / "inject")

# also under a plan for buckets, with its orders
BUCKETS = Hook("_dltune_torch_buckets", (_INJECTED,), ("torch",), ("ddp_bucket",))

EXTENSION = Extension(
    name="ranks",
    commands={
        "horovod-report": Command(
            "Measure",
            "Show how communication threads use the cores of ranks.",
            "dltune.systems.ranks.commands:horovod_report",
        ),
    },
    planners={
        "allreduce": "dltune.systems.ranks.allreduce.planner:PLANNER",
        "buckets": "dltune.systems.ranks.buckets.planner:PLANNER",
    },
    rules=("dltune.systems.ranks.findings",),
    documents={
        "dltune.horovod": DocumentKind(
            "dltune.systems.ranks.horovod.schema:load",
            ("ranks",),
            "dltune.systems.ranks.horovod.view:view",
            is_evidence=True,
        ),
    },
    probes=("dltune.systems.ranks.horovod.watch.document:start",),
    settings=(
        "dltune.systems.ranks.settings:HOROVOD",
        "dltune.systems.ranks.settings:MPI_YIELD",
        "dltune.systems.ranks.settings:DDP_BUCKET",
        "dltune.systems.ranks.settings:RANKS",
    ),
    hooks=(
        Hook("_dltune_horovod", (_INJECTED,), ("horovod",)),
        BUCKETS,
    ),
)
