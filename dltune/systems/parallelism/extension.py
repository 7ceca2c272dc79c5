"""Registrations of the parallelism system."""

from __future__ import annotations

from dltune.extensions import DocumentKind, Extension

EXTENSION = Extension(
    name="parallelism",
    planners={"parallelism": "dltune.systems.parallelism.planner:PLANNER"},
    measurements={"ranks": "dltune.systems.parallelism.rank_speeds:measure"},
    documents={
        "dltune.operators": DocumentKind(
            "dltune.systems.parallelism.schemas.operators:load",
            ("operators",),
            "dltune.systems.parallelism.show:operators_view",
        ),
        "dltune.operator-times": DocumentKind(
            "dltune.systems.parallelism.schemas.operators:load_times",
            ("parts",),
            "dltune.systems.parallelism.show:times_view",
        ),
        "dltune.topology": DocumentKind(
            "dltune.systems.parallelism.schemas.topology:load",
            ("devices",),
            "dltune.systems.parallelism.show:topology_view",
        ),
    },
)
