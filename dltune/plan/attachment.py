"""Whether the plugin has come to a job that needs it, and why it has not."""

from __future__ import annotations

import time

from dltune.base.errors import DltuneError, UsageError
from dltune.job import protocol
from dltune.job.failures import Sightings, hopeless, require_all_reported, why_no_step
from dltune.job.launch import Event, Job, Process
from dltune.job.protocol import REPORT
from dltune.job.record import Record

# how often a job is looked after whose step has not been seen
LOOK_SECONDS = 2.0


class Attachment:
    """One job's. `seen`: which of its processes were heard of."""

    def __init__(self) -> None:
        self.seen = Sightings()
        self._processes: list[Process] = []
        self._looked = time.monotonic()

    def greet(self, process: Process) -> Record:
        """What is to be kept of a process whose plugin has just come."""
        self._processes.append(process)
        record = self.seen.records[process.pid] = Record(process.hello)
        return record

    def look(self, job: Job) -> None:
        """Until the plan is in force somewhere: make sure that the job does not run without it.
        Raises DltuneError when it does."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS or job.exit_code is not None:
            return
        self._looked = now
        if error := hopeless(self.seen):
            raise error
        require_all_reported(job.pid, *self.seen.reported())
        for process in self._processes:
            process.order([REPORT])

    def hear(self, event: Event) -> None:
        """Raises DltuneError when the plugin could not be built or loaded: the job would run plain,
        and that must not pass for a run with the plan."""
        self.seen.add(event.message)
        if isinstance(event.message, protocol.Failed):
            raise why_no_step(self.seen, None)

    def why_nothing(self, exit_code: int, unmet: str) -> DltuneError:
        """Why the plan came into force nowhere; `unmet` says so where a job ran other graphs to
        its end."""
        if exit_code == 0 and any(record.graphs for record in self.seen.records.values()):
            return UsageError(unmet, remedy="profile the job as it is now and plan again")
        return why_no_step(self.seen, exit_code)
