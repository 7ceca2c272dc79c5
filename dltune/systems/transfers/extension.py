"""The parts that the system for parameter transfers registers."""

from __future__ import annotations

from dltune.extensions import Extension

EXTENSION = Extension(
    name="transfers",
    planners={"transfers": "dltune.systems.transfers.planner:PLANNER"},
)
