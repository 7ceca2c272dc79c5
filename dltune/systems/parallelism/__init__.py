"""Search for the division of each operator over devices, after FlexFlow."""

from __future__ import annotations

from pathlib import Path

# what runs inside the processes of a job
INJECTED = Path(__file__).resolve().parent / "inject"
