"""Horovod's own record of what its background thread did (HOROVOD_TIMELINE), read."""

from dltune.systems.ranks.horovod.timeline.file import recording
from dltune.systems.ranks.horovod.timeline.recorded import (
    Batch,
    Negotiation,
    Recording,
    steps,
)
from dltune.systems.ranks.horovod.timeline.summary import read, summary

__all__ = ["Batch", "Negotiation", "Recording", "read", "recording", "steps", "summary"]
