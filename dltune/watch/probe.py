"""Probes: what systems and other packages observe of a job besides dltune's core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from dltune.frameworks.capabilities import Framework


class Probe(Protocol):
    """Observes one aspect of a job in a thread of its own, from when it is made."""

    def end(self, framework: Framework) -> msgspec.Struct | None:
        """Stop, and return a document for the rules (`Evidence.report`); None: there was nothing to
        observe. `framework`: that of the process that trains. Raises UsageError with the reason if
        nothing could be observed."""


# from the root of the job's process tree to a probe; None: there is nothing to observe in this job
Start = Callable[[int], Probe | None]
