"""What measures candidates, as the search sees it. `measured` is the real one."""

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
    """Candidates that stand ready take turns. Only one thing happens at a time."""

    @property
    def room(self) -> int:
        """How many candidates may stand at once: 2 at least, with less there is no comparison."""

    @property
    def framework(self) -> Framework | None:
        """The job's, once one has stood."""

    def expect(self, candidates: Sequence[Candidate]) -> None:
        """These will be started next: what can be done for all of them at once may be done now."""

    def start(self, candidate: Candidate) -> Refused | None:
        """Start the job under a candidate and wait until it stands ready, warmed up."""

    def round(self, candidates: Sequence[Candidate]) -> Mapping[Candidate, float | Refused]:
        """A turn of each, in that order: the seconds of a step, or why there are none."""

    def drop(self, candidate: Candidate) -> None:
        """End a candidate that stands."""

    def left(self) -> float:
        """Seconds of the budget that are left; below 0 when it is overdrawn."""
