"""A section of a plan in a benchmark: its orders to the job, and what it measures there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dltune.job import protocol
    from dltune.job.record import Record


class Observer:
    """Observes nothing and orders nothing; a planner's own overrides what it does.

    `records_ops`: it needs the times of single ops, so the job records them in every setting.
    """

    records_ops = False

    def require(self, python: protocol.Python) -> None:
        """Check an interpreter of the job that starts. Raises UsageError if the job is not the one
        that the section is for."""

    def lines(self) -> list[str]:
        """Return orders for every process of the job."""
        return []

    def hear(self, record: Record, execution: protocol.Execution) -> None:
        """Receive an execution of a step."""

    def taken(self) -> tuple[float, ...]:
        """Return the efficiencies of the executions since the last call, each 0 to 1."""
        return ()

    def faults(self, records: Iterable[Record]) -> Iterator[str]:
        """Yield sentences on what of the section is not in force in the job."""
        return iter(())
