"""Registrations of the parallelism system."""

from __future__ import annotations

from dltune.extensions import DocumentKind, Extension

_PACKAGE = "dltune.systems.parallelism"


def _kind(name: str, main: str) -> DocumentKind:
    return DocumentKind(f"{_PACKAGE}.schemas.{name}:load", (main,), f"{_PACKAGE}.views.{name}:view")


EXTENSION = Extension(
    name="parallelism",
    planners={"parallelism": "dltune.systems.parallelism.planner:PLANNER"},
    measurements={"ranks": "dltune.systems.parallelism.commands.rank_speeds:measure"},
    documents={
        "dltune.operators": _kind("operators", "operators"),
        "dltune.operator-times": _kind("operator_times", "parts"),
        "dltune.topology": _kind("topology", "devices"),
    },
)
