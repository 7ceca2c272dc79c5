"""Search for the division of each operator over devices, after FlexFlow."""

from __future__ import annotations

from pathlib import Path

# files that run inside the processes of a job
INJECTED = Path(__file__).resolve().parent / "inject"
