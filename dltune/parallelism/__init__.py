"""A network's operators divided over devices: configurations, simulation, search."""

from __future__ import annotations

from pathlib import Path

# what frameworks share inside the processes of a job
INJECTED = Path(__file__).resolve().parent / "inject"
