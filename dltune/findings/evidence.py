"""The measurements of a job from which rules derive findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from dltune.analysis.roofline import Analysis
    from dltune.schemas.diagnosis import Graphs, Observation, Python
    from dltune.schemas.diagnosis import Process as JobProcess
    from dltune.schemas.io import (
        DataFile,
        Experiment,
        Io,
        Process,
        Thread,
        Watch,
    )

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True)
class Evidence:
    """The documents of one job; None for a document that was not made. A rule without the documents
    that it needs yields no finding. `reports`: documents of systems and other packages, one of each
    kind at most."""

    observation: Observation | None = None
    profile: Analysis | None = None
    io: Io | None = None
    reports: tuple[msgspec.Struct, ...] = ()

    @property
    def framework(self) -> str | None:
        """The framework of the job, as documents name it; None if it is unknown."""
        if self.profile:
            return self.profile.profile.framework.name
        return self.main.framework if self.main else None

    @property
    def main(self) -> JobProcess | None:
        """The process that trains."""
        return self.observation.main if self.observation else None

    @property
    def python(self) -> Python | None:
        """The samples of the main thread."""
        return self.observation.python if self.observation else None

    @property
    def graphs(self) -> Graphs | None:
        """The observed graphs of the framework."""
        return self.observation.graphs if self.observation else None

    @property
    def watch(self) -> Watch | None:
        """The observed reading of data."""
        return self.io.watch if self.io else None

    @property
    def files(self) -> Sequence[DataFile]:
        """The data files that the job reads."""
        return self.watch.files if self.watch else ()

    @property
    def readers(self) -> Sequence[tuple[Process, Thread]]:
        """The threads that read data, each after its process."""
        return self.watch.readers if self.watch else ()

    @property
    def experiment(self) -> Experiment | None:
        """The measured ways to read a file."""
        return self.io.experiment if self.io else None

    def report(self, kind: type[T]) -> T | None:
        """Return the system's document of this kind."""
        return next((one for one in self.reports if isinstance(one, kind)), None)
