"""Interface of the search to the measurement of candidates; `measured` implements it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from dltune.schemas.profile import Framework
from dltune.tune.candidate import Candidate


@dataclass(frozen=True)
class Refused:
    """Why a candidate cannot be measured, now or any more. It is dropped already.

    "failed": the job crashed, hung, ended too early or never came to a step under it; "no effect":
    it came to a step, but there is nothing in the job that the choices act on.
    """

    verdict: Literal["failed", "no effect"]
    why: str


class Evaluator(Protocol):
    """Candidates that are ready take turns. Only one thing happens at a time."""

    @property
    def room(self) -> int:
        """Number of candidates that can wait at once: at least 2, as needed for a comparison."""

    @property
    def framework(self) -> Framework | None:
        """The job's framework, once a candidate was ready."""

    def expect(self, candidates: Sequence[Candidate]) -> None:
        """Prepare for the next starts: work that all of them can share at once can be done now."""

    def start(self, candidate: Candidate) -> Refused | None:
        """Start the job under a candidate and wait until it is ready, warmed up."""

    def round(self, candidates: Sequence[Candidate]) -> Mapping[Candidate, float | Refused]:
        """A turn of each, in that order: the seconds of a step, or why there are none."""

    def drop(self, candidate: Candidate) -> None:
        """End a candidate that waits."""

    def left(self) -> float:
        """Seconds of the budget that are left; below 0 when it is overdrawn."""
