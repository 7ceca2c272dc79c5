"""A job that runs: first watched under its own settings, then measured op by op."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from dltune.analysis.roofline import analyse
from dltune.base.errors import DltuneError
from dltune.findings.evidence import Evidence
from dltune.findings.python.denormals import are_in_ops
from dltune.frameworks.capabilities import FRAMEWORKS, framework
from dltune.job import protocol
from dltune.job.failures import loaded
from dltune.job.launch import Job, Process
from dltune.job.record import Record, period
from dltune.profile.climb import Choice
from dltune.profile.processes import WARM_UP
from dltune.profile.session import Session
from dltune.profile.session_state import ProfileRequest, Progress
from dltune.schemas.machine import Machine, Roofs
from dltune.system.topology import default_interval
from dltune.watch.job_watch import JobWatch, looked_at_again, unsettled

# of the budget the watch takes so much, in no more seconds than these
SHARE, MOST, LEAST = 0.4, 30.0, 5.0
# a job is watched from its third step on; one that has trained for fewer, so long after its
# first; one that has not begun to, so long after its framework is there (large graphs are traced
# for long), and again once it has, for it may have prepared its data until then; one without a
# framework, so long after its start; one of a framework that needs longer, as long as that
FEW, UNTRAINED, WITHOUT = 10.0, 30.0, 30.0
LONGEST = max(known.patience for known in FRAMEWORKS.values())
# at last it runs by itself for so long, and may take so long to report
AFTER, PATIENT = 2.0, 2.0


class Observing:
    """Drives one job. `run` blocks until all is seen, the budget is spent or the job has ended."""

    def __init__(
        self,
        machine: Machine,
        command: Sequence[str],
        budget: float,
        counters: Choice | None,
        tell: Callable[[Progress], None],
        roofs: Roofs | None = None,
        lacks: Callable[[int], tuple[str, ...] | None] = lambda _: None,
        *,
        ends: bool = True,
    ) -> None:
        """`budget`: seconds from when TensorFlow is there; the job's own start is not counted.
        `ends`: the job ends after the observation, so its numbers can be changed at the end."""
        self._command = tuple(command)
        self._tell = tell
        self._wanted = max(LEAST, min(SHARE * budget, MOST))
        self._began = time.monotonic()
        self._budget = budget
        self._greeted: float | None = None
        self._job: Job | None = None
        self._watch: JobWatch | None = None
        self._seen: Evidence | None = None
        self._prepared = False  # True if the watch began before the job trained
        self._settled = False  # True once it is settled whether memory grows
        self._period: float | None = None  # of its step, at the end
        self._session = Session(
            ProfileRequest(
                machine,
                command,
                interval=default_interval(machine),
                cap=8,
                counters=counters,
                tell=self._look_on,
                keep=lambda _: None,
                ready=self._watched,
                over=self._over,
                roofs=roofs,
                lacks=lacks,
                flushes=lambda: ends and self._seen is not None and are_in_ops(self._seen),
            )
        )

    def greet(self, process: Process) -> list[str]:
        """First orders of a process."""
        if self._greeted is None:
            self._greeted = time.monotonic()
        return self._session.greet(process)

    def run(self, job: Job) -> DltuneError | None:
        """Return the reason why no step was found; None if a step was found. The job can still run
        afterwards."""
        self._job = job
        problem = None
        try:
            self._session.run(job)
        except DltuneError as error:
            problem = error
        self._session.release()
        self._period = self._runs_at_last(job)
        seen = self._seen
        if seen is not None and seen.observation is not None:
            looked = looked_at_again(seen.observation, job, self._left(), self._tell_of_growth)
            self._seen, self._settled = replace(seen, observation=looked), True
        return problem

    def seen(self) -> Evidence:
        """End the watch, and return the evidence so far."""
        if self._seen is None and self._watch is not None:
            self._end(self._watch)
        profile = self._session.profile
        seen = replace(self._seen or Evidence(), profile=analyse(profile) if profile else None)
        observation, flushed = seen.observation, self._session.flushed
        if observation is None:
            return seen
        if not self._settled:
            observation = unsettled(observation)
        if (graphs := observation.graphs) is not None:
            graphs = msgspec.structs.replace(graphs, flushed=flushed, period=self._period)
            observation = msgspec.structs.replace(observation, graphs=graphs)
        return replace(seen, observation=observation)

    def _runs_at_last(self, job: Job) -> float | None:
        """Return the period of the measured step, without other measurements, once its ops are
        measured: by then the machine can be faster than when it was recorded."""
        if (measured := self._session.measured_step) is None:
            return None
        pid, graph = measured
        if (before := self._reported(job, pid)) is None:
            return None
        until = time.monotonic() + AFTER
        for _ in job.events(0.1):
            if time.monotonic() >= until:
                break
        after = self._reported(job, pid)
        record = self._session.state.records[pid]
        return period(record, graph, before, after) if after else None

    def _reported(self, job: Job, pid: int) -> protocol.Report | None:
        self._session.state.ask(pid)
        until = time.monotonic() + PATIENT
        for event in job.events(0.1):
            mine = event and event.process and event.process.pid == pid
            if event and mine and isinstance(event.message, protocol.Report):
                return event.message
            if time.monotonic() >= until:
                break
        return None

    def _over(self) -> bool:
        return self._left() <= 0

    def _left(self) -> float:
        """Return the remaining seconds of the budget."""
        began = self._greeted if self._greeted is not None else self._began + LONGEST
        if self._watch is not None:
            began = min(began, self._watch.began)
        return began + self._budget - time.monotonic()

    def _tell_of_growth(self, left: float) -> None:
        self._tell(Progress("checking whether memory still grows", left=left))

    def _watched(self) -> bool:
        """Return True if the job has been watched for long enough."""
        return self._seen is not None and not self._has_prepared()

    def _has_prepared(self) -> bool:
        """Return True if it was watched before it trained, and trains now."""
        return self._prepared and self._session.state.trained is not None

    def _look_on(self, progress: Progress) -> None:
        if self._watch is None or self._has_prepared():
            self._tell(progress)
            self._begin(progress.step)
        elif self._seen is not None:
            self._tell(progress)
        else:
            left = max(0.0, self._wanted - self._watch.seconds)
            # steps are not counted meanwhile
            self._tell(Progress("watching the job as found", 0, left=left))
            if left == 0:
                self._end(self._watch)

    def _end(self, watch: JobWatch) -> None:
        self._seen = watch.end(" ".join(self._command))

    def _begin(self, steps: int) -> None:
        if steps < WARM_UP and self._is_early():
            return
        if self._job is None or self._job.exit_code is not None:
            return
        records = self._session.state.records
        subject = max(records, key=lambda pid: _trained(records[pid]), default=self._job.pid)
        if self._watch is not None:
            self._end(self._watch)
            self._seen = None
            self._wanted = max(LEAST, min(SHARE * self._left(), MOST))
        self._prepared = self._session.state.trained is None
        self._watch = JobWatch(self._job.pid, subject, records)

    def _is_early(self) -> bool:
        """For a job without its third step to be watched all the same."""
        now = time.monotonic()
        if (trained := self._session.state.trained) is not None:
            return now - trained < min(FEW, self._budget / 3)
        if self._greeted is not None:
            return now - self._greeted < min(UNTRAINED, self._budget / 3)
        return now - self._began < self._patience()

    def _patience(self) -> float:
        """Return the most seconds until a job's first step, by the frameworks of its Pythons."""
        names = {loaded(python.pid) for python in self._session.state.sightings.pythons}
        return max([WITHOUT, *(framework(name).patience for name in names)])


def _trained(record: Record) -> int:
    """Return the number of executions of graphs that train."""
    return sum(runs for graph, runs in record.runs.items() if record.trains(graph))
