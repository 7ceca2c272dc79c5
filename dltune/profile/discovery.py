"""Which process of a job trains, and which of its graphs are the steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dltune.job.record import Record, main_graph, span, step_graphs
from dltune.schemas.profile import SERVERS, job, task

# executions of the main step under the job's own settings: the first few warm up
WARM_UP, OWN = 3, 12
# a long step need not run so often before the climb begins
OWN_SECONDS, OWN_LEAST = 30.0, 3
# a step that takes less of the op time than this is not one to tune
LEAST_SHARE = 0.02
# so long may validation, or the filling of a buffer, go on before it is taken for the step
UNTRAINED_SECONDS = 10.0


@dataclass(frozen=True)
class Steps:
    """The steps of a job: graphs of one process, the one with the most op time first."""

    pid: int
    targets: tuple[int, ...]
    trains: bool


class Discovery:
    """Looks for the steps in what the processes of a job have told so far."""

    def __init__(
        self,
        records: Mapping[int, Record],
        clock: Callable[[], float] = time.monotonic,
        *,
        xla: bool = False,
        seconds: float = OWN_SECONDS,
        least: int = OWN_LEAST,
    ) -> None:
        """`xla`: whether a graph with XLA's clusters, whose ops cannot be told apart, will do.
        `seconds`, `least`: of warm steps, that are enough where steps are long."""
        self._records = records
        self._clock = clock
        self._xla = xla
        self._seconds, self._least = seconds, least
        self._untrained_since: float | None = None

    @property
    def runs(self) -> int:
        """Executions so far of the graph that looks most like the step."""
        found = self._busiest()
        return self._records[found[0]].runs[found[1]] if found else 0

    def find(self) -> Steps | None:
        """The steps, once they have run often enough; None until then.

        A graph that computes no gradients is taken only when none that does has come in
        `UNTRAINED_SECONDS`.
        """
        found = self._busiest()
        if found is None:
            return None
        pid, main = found
        record = self._records[pid]
        kept = record.executions[main]
        long = sum(map(span, kept[WARM_UP:])) >= self._seconds
        if record.runs[main] <= WARM_UP + (self._least if long else OWN):
            return None
        if not record.trains(main):
            if self._untrained_since is None:
                self._untrained_since = self._clock()
            if self._clock() - self._untrained_since < UNTRAINED_SECONDS:
                return None
        return self._steps(pid, main)

    def salvage(self) -> Steps | None:
        """The steps as far as they can be told now that the job has ended."""
        found = self._busiest()
        return self._steps(*found) if found else None

    def _steps(self, pid: int, main: int) -> Steps:
        record = self._records[pid]
        return Steps(pid, tuple(step_graphs(record, LEAST_SHARE)), record.trains(main))

    def _busiest(self) -> tuple[int, int] | None:
        """The process whose main graph trains and takes the most time, and that graph; a parameter
        server only where there is no other."""
        found = [
            (pid, main)
            for pid, record in self._records.items()
            if (main := main_graph(record)) is not None
            and (self._xla or not record.graphs[main].xla)
        ]
        return max(
            found,
            key=lambda one: self._rank(*one),
            default=None,
        )

    def _rank(self, pid: int, graph: int) -> tuple[bool, bool, float]:
        record = self._records[pid]
        serves = job(task(record.graphs[graph].device)) == SERVERS
        return not serves, record.trains(graph), record.seconds[graph]
