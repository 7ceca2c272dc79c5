"""Everything that touches PyTorch: the native plugin and its way into an unmodified job."""

from __future__ import annotations

from pathlib import Path

from dltune.extensions import Hook

# what runs inside the processes of a job
INJECTED = Path(__file__).resolve().parent / "inject"
# without orders it records one step of the job
RECORDING = Hook("_dltune_torch_recording", (str(INJECTED),), ("torch",))
