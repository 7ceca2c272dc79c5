"""The parts that the memory system registers."""

from __future__ import annotations

from dltune.extensions import Extension

EXTENSION = Extension(
    name="memory",
    planners={"memory": "dltune.systems.memory.planner:PLANNER"},
)
