"""One profiling session: its phases in turn. Each phase returns the next.

`Search` finds the steps of the job; a `Rest` leaves the job alone until it may be measured.
`op_measurement` has the other phases: `Climbing` tries thread counts, `RecordingCost` or
`DenormalCost` compares steps, and `PythonSampling` samples the Python between them.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from dltune.frameworks.capabilities import framework
from dltune.job.failures import (
    crash_of,
    hopeless,
    none_found,
    require_all_reported,
    why_no_step,
)
from dltune.job.launch import Event, Job, Process
from dltune.job.protocol import (
    DETACH,
    Building,
    Execution,
    Failed,
    Message,
    Orders,
    Report,
    machine_lines,
)
from dltune.job.record import Record
from dltune.profile.op_measurement import SEARCH_SECONDS, Climbing
from dltune.profile.processes import OWN, OWN_LEAST, Steps
from dltune.profile.session_state import Ended, Phase, ProfileRequest, Progress, SessionState
from dltune.schemas.profile import Profile, Ratio
from dltune.system.proc.process import exists

# seconds between two samples of a job that has shown no step yet
LOOK_SECONDS = 2.0
# seconds without a step after which dltune reports that there is none
STILL_SECONDS = 60.0
# seconds for which steps are recorded again after a rest, at most
ANEW_SECONDS = 5.0
TIME_LIMIT = "the time limit was reached"


class Session:
    """Driver of one job. `run` blocks until the profile is whole or the job has ended."""

    def __init__(self, request: ProfileRequest) -> None:
        self.state = SessionState(request)
        self._phase: Phase = Search(self.state)
        self._released = False

    @property
    def profile(self) -> Profile | None:
        """The measurements so far."""
        return self.state.profile

    @property
    def measured_step(self) -> tuple[int, int] | None:
        """Process and graph of the step, if the step is a single graph."""
        measured = self.state.measured
        if measured is None or len(measured.steps.targets) > 1:
            return None
        pid = measured.steps.pid
        known = framework(self.state.records[pid].process.framework)
        return None if known.is_eager else (pid, measured.steps.targets[0])

    @property
    def flushed(self) -> Ratio | None:
        """Ratio of the time of a step with denormal numbers flushed to zero to the time without
        flushing, if it was tried."""
        measured = self.state.measured
        return measured.flushing.ratio() if measured and measured.flushing else None

    def greet(self, process: Process) -> list[str]:
        """Return the first orders of a process: record every graph, under the job's own
        settings."""
        state = self.state
        state.records[process.pid] = Record(process.hello)
        state.processes[process.pid] = process
        state.building = None
        watched = state.measured is None and not self._released
        return [
            *machine_lines(state.request.machine),
            DETACH,
            "count\t1",
            *Orders(state.version, discover=watched).lines(),
        ]

    def run(self, job: Job) -> Profile:
        """Return the whole profile. The job still runs afterwards.

        Raises a DltuneError with the reason when the job ran no step; measurements until then have
        been kept.
        """
        state = self.state
        state.job = job
        reason = self._reason_of_end(job)
        state.save(reason)
        if state.profile is None:
            late = none_found(state.sightings, long=True) if reason == TIME_LIMIT else None
            raise late or why_no_step(state.sightings, job.exit_code)
        if reason and (crash := crash_of(state.sightings, job.exit_code)):
            raise crash
        return state.profile

    def release(self) -> None:
        """Let the job, and all that it starts from now on, go on as if dltune were not there."""
        self._released = True
        self.state.order_all(discover=False)

    def interrupted(self) -> None:
        """Keep what there is, as partial: the user ended the session."""
        self.state.save("interrupted")

    def _reason_of_end(self, job: Job) -> str | None:
        """Run all phases, and return why the profile is partial; None if it is whole."""
        request = self.state.request
        for event in job.events(0.5):
            if event is not None:
                self._hear(event)
            if request.over():
                return TIME_LIMIT
            phase = self._phase.advance()
            if isinstance(phase, Ended):
                return phase.reason
            self._phase = phase
            if event is None and self._measured_process_ended() and job.exit_code is None:
                return "the measured process ended, while the job continues"
            request.tell(self._phase.progress())
        return f"the job ended (exit code {job.exit_code}) before the measurement was complete"

    def _hear(self, event: Event) -> None:
        state, message = self.state, event.message
        state.sightings.add(message)
        record = state.records[event.process.pid] if event.process else None
        if record is None and isinstance(message, Building):
            state.building = message.phase
        elif record is not None and not isinstance(message, Execution):
            record.add(message)
        self._phase = self._phase.hear(record, message)

    def _measured_process_ended(self) -> bool:
        measured = self.state.measured
        return measured is not None and not exists(measured.steps.pid)


@dataclass(frozen=True)
class Rested:
    """The end of a rest, and the number of executions until then, by process and graph."""

    until: float
    runs: dict[int, Counter[int]]


class Search(Phase):
    """Search for the steps: every graph is recorded, under the job's own settings."""

    def __init__(self, state: SessionState, rested: Rested | None = None) -> None:
        super().__init__(state)
        self._rested = rested

    def hear(self, record: Record | None, message: Message) -> Phase:
        state = self.state
        if isinstance(message, Failed | Report):
            if state.request.ready() and (error := hopeless(state.sightings)):
                raise error
        elif record and isinstance(message, Execution):
            state.ran = time.monotonic()
            record.add(message)
            known = message.graph in record.graphs
            if state.trained is None and known and record.trains(message.graph):
                state.trained = time.monotonic()
            return self._after_execution()
        return self

    def advance(self) -> Phase:
        """Every few seconds: make sure that the job can still come to a step."""
        state, job = self.state, self.state.job
        assert job is not None
        if time.monotonic() - state.looked < LOOK_SECONDS or job.exit_code is not None:
            return self
        state.looked = time.monotonic()
        phase = self._after_a_while()
        require_all_reported(job.pid, *state.sightings.reported())
        for pid in state.processes:
            state.ask(pid)
        searched = 0.0 if state.trained is None else time.monotonic() - state.trained
        long = searched >= SEARCH_SECONDS
        if state.request.ready() and (error := none_found(state.sightings, long=long)):
            raise error
        return phase

    def progress(self) -> Progress:
        return Progress(self._waiting_for(), self.state.discovery.runs)

    def _after_execution(self) -> Phase:
        """Return the climb once there are steps and it may begin; else a rest, or the search."""
        steps = self.state.discovery.find()
        if steps is None:
            return self
        if not self.state.request.ready():
            return Rest(self.state)
        return Climbing(self.state, steps, self) if self._recorded_anew(steps) else self

    def _after_a_while(self) -> Phase:
        return self if self._rested is None else self._after_execution()

    def _recorded_anew(self, steps: Steps) -> bool:
        """Return True if the steps were recorded often enough since the rest, or there was none.
        Then drop, for each graph recorded again, the executions from before the rest."""
        rested, records = self._rested, self.state.records
        if rested is None:
            return True

        def since(pid: int, graph: int) -> int:
            return records[pid].runs[graph] - rested.runs.get(pid, Counter())[graph]

        late = time.monotonic() - rested.until >= ANEW_SECONDS
        if since(steps.pid, steps.targets[0]) < OWN and not late:
            return False
        for pid, record in records.items():
            for graph, kept in record.executions.items():
                if (anew := since(pid, graph)) >= OWN_LEAST:
                    del kept[:-anew]
        return True

    def _waiting_for(self) -> str:
        state = self.state
        if state.building:
            return state.building
        if state.records:
            if self._still_seconds() >= STILL_SECONDS:
                return (
                    f"searching for the training step, but no op has run for {STILL_SECONDS:.0f} s "
                    "(dltune diagnose --pid shows where a job waits)"
                )
            return "searching for the training step"
        if state.sightings.pythons:
            return "waiting for the job to import its framework"
        return "waiting for the job to start Python"

    def _still_seconds(self) -> float:
        """Return the seconds since anything of the job ran."""
        return 0.0 if self.state.ran is None else time.monotonic() - self.state.ran


class Rest(Search):
    """A pause of the search: the steps are known, but the job may not be measured yet. Until then
    nothing is recorded."""

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        state.order_all(discover=False)

    def _after_execution(self) -> Phase:
        return self

    def _after_a_while(self) -> Phase:
        """Return a new search once the job may be measured: records of the job's start do not show
        how it runs now."""
        state = self.state
        if not state.request.ready():
            return self
        runs = {pid: record.runs.copy() for pid, record in state.records.items()}
        search = Search(state, Rested(time.monotonic(), runs))
        state.order_all(discover=True)
        return search

    def _still_seconds(self) -> float:
        return 0.0
