"""Horovod's own record of what its background thread did (HOROVOD_TIMELINE), read."""

from dltune.horovod.timeline.file import recording
from dltune.horovod.timeline.recorded import Batch, Negotiation, Recording, steps
from dltune.horovod.timeline.summary import read, summary

__all__ = ["Batch", "Negotiation", "Recording", "read", "recording", "steps", "summary"]
