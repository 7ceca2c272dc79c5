"""What the parallelism system registers."""

from __future__ import annotations

from dltune.extensions import DocumentKind, Extension


def _kind(name: str, main: str) -> DocumentKind:
    return DocumentKind(
        f"dltune.documents.{name}:load", (main,), f"dltune.report.kinds.{name}:view"
    )


EXTENSION = Extension(
    name="parallelism",
    planners={"parallelism": "dltune.planners.parallelism.planner:PLANNER"},
    measurements={"ranks": "dltune.cli.rank_speeds:measure"},
    documents={
        "dltune.operators": _kind("operators", "operators"),
        "dltune.operator-times": _kind("operator_times", "parts"),
        "dltune.topology": _kind("topology", "devices"),
    },
)
