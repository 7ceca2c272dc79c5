"""Contest of settings: one job under each setting, and all jobs measured in turns.

The settings take turns, round after round, so that the machine's drift hits all settings alike.
`Runner` is one job under one setting, `Contest` drives the turns of all jobs, and `compete` starts
and ends their processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from dltune.base.errors import DltuneError, JobFailed, UsageError
from dltune.bench.contestants import Setting, on_part
from dltune.job import protocol, rank_layout
from dltune.job.failures import why_no_step
from dltune.job.launch import Event, Job, Process
from dltune.job.protocol import Orders, machine_lines
from dltune.job.rank_layout import Shares
from dltune.job.record import Record
from dltune.job.subprocesses import last_words
from dltune.plan.plan import is_graph_independent, observers
from dltune.plan.settings.enforce import Settings
from dltune.schemas.bench import Turn
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Plan
from dltune.schemas.settings import SettingsPlan
from dltune.turns import (
    BRIEFLY,
    Allotment,
    JobEndedError,
    StepBarrier,
    StepGraphs,
    Taken,
    first_turn,
)


class Runner(StepBarrier):
    """One job under one setting, which it has from its first step on.

    The plan's `signatures` are the job's step graphs where it runs as planned.

    Settings around the ops change the graphs: a job without them finds its steps by itself, and so
    does one whose plan names none, or is for any graph. Of several ranks the first that has found
    them leads; the others wait for it in their collectives, so it alone waits at the step barrier.
    """

    def __init__(
        self,
        setting: Setting,
        machine: Machine,
        plan: Plan,
        heard: Callable[[Record, protocol.Execution], None] = lambda *_: None,
    ) -> None:
        """`heard` is called with each execution of the process that leads."""
        around = plan.of(SettingsPlan)
        chosen = around.chosen if around else ()
        as_planned = not chosen or (setting.name == "plan" and not is_graph_independent(plan))
        known = plan.signatures if as_planned else ()
        sections = tuple(observers(plan, in_force=setting.name == "plan").values())

        def hear(record: Record, execution: protocol.Execution) -> None:
            for section in sections:
                section.hear(record, execution)
            heard(record, execution)

        super().__init__(known, hear)
        self.setting = setting
        self._sections = sections
        self.settings = Settings(setting.applied, machine)
        self._plan = plan
        self._shares = Shares(machine)
        self._processes: dict[int, tuple[Process, Setting]] = {}

    def answer(self, python: protocol.Python) -> dict[str, object]:
        """To an interpreter of the job: the settings around the ops, the CPUs it is confined to;
        for a rank, its share. Raises UsageError when the job's cluster is not the plan's."""
        for section in self._sections:
            section.require(python)
        own: dict[str, object] = {}
        if self.setting.cpus:
            own = {"cpus": list(self.setting.cpus)}
        elif self.setting.shared:
            own = self._shares.answer(python)
        return {**self.settings.answer(python), "plugin": True, **own}

    def greet(self, process: Process) -> list[str]:
        """First orders of a process: the setting, and to stop before the first step, or to report
        every graph until the steps are found."""
        self.sightings.records[process.pid] = Record(process.hello)
        part, rank = self._shares.of(process.pid)
        setting = self.setting if rank is None else on_part(self.setting, self._plan, part)
        self._processes[process.pid] = process, setting
        uniform = self.setting.applied.means.uniform
        first = [*(self.settings.greet(process) if uniform else machine_lines(part))]
        first += [line for section in self._sections for line in section.lines()]
        if self._finder is None:
            return [*first, *setting.lines()]
        found = self.steps
        orders = self._orders(setting, found, leads=False) if found else Orders(1, discover=True)
        return [*first, *setting.pools(), *orders.lines()]

    def take(self, executions: int, idle: Callable[[], None] = lambda: None) -> Taken:
        """Take a turn as `StepBarrier.take` does; if an execution runs several steps, of these."""
        self._efficiencies()
        taken = super().take(executions, idle)
        taken = dataclasses.replace(taken, scheduling=self._efficiencies())
        several = self.settings.steps
        if several == 1:
            return taken
        return dataclasses.replace(
            taken,
            steps=tuple(seconds / several for seconds in taken.steps),
            per_step=taken.per_step and taken.per_step / several,
        )

    def _efficiencies(self) -> tuple[float, ...]:
        return tuple(each for section in self._sections for each in section.taken())

    @property
    def faults(self) -> Iterator[str]:
        """Yield the parts of its setting that the job did not adopt, sentences."""
        yield from self.settings.faults
        for section in self._sections:
            yield from section.faults(self.sightings.records.values())

    @property
    def predicted(self) -> float | None:
        """Seconds of a step in the plan, which knows nothing of several ranks."""
        return None if self._shares else self.setting.predicted

    def _hear(self, event: Event) -> None:
        self.settings.hear(event)
        super()._hear(event)

    def _stop_at(self, found: StepGraphs) -> None:
        for pid, (process, setting) in self._processes.items():
            process.order(self._orders(setting, found, leads=pid == found.pid).lines())

    def _orders(self, setting: Setting, found: StepGraphs, *, leads: bool) -> Orders:
        return dataclasses.replace(
            setting.orders, version=2, targets=found.signatures, barrier=leads
        )

    def why_not(self) -> DltuneError:
        """The error with the reason why the job has not come to a step of the plan."""
        graphs = [g for record in self.sightings.records.values() for g in record.graphs.values()]
        elsewhere = any(g.xla or "GPU" in g.device or "TPU" in g.device for g in graphs)
        finding = self._finder is not None
        if self.exit_code not in (0, None) or elsewhere or not graphs or finding:
            return why_no_step(self.sightings, self.exit_code)
        largest = sorted(graphs, key=lambda g: -len(g.nodes))
        names = ", ".join(dict.fromkeys(g.name or g.signature for g in largest[:3]))
        return UsageError(
            f"the plan was made for other graphs than those that the job runs ({names})",
            remedy="pass the plan of this command, or profile and plan it again",
        )


# Turns of all settings

# rounds that are taken however long they are
LEAST_ROUNDS = 10
# seconds without news after which a job that has its turn is taken to hang
HUNG = 600.0
HUNG_REMEDY = "pass a longer --wait if a step of the job takes that long"
MORE_STEPS = "train for more steps, or shorten the turns with --seconds-per-turn"


class HangsError(UsageError):
    """A job hangs in its turn."""


@dataclass(frozen=True)
class Progress:
    """`round` counts from 1, 0 before the first. `left` is in seconds, None while not known."""

    phase: str
    round: int = 0
    left: float | None = None


@dataclass(eq=False)
class Contest:
    """Drives the jobs of all settings. `run` blocks until all rounds are over or a job ends.

    `seconds`: about how long a turn is; `patience`: seconds for which a job can send no message
    before its first step. `enough`: most seconds of all rounds; if they would take longer, there
    are fewer rounds, but at least `LEAST_ROUNDS`. `keep` is called after each round. `watch` is
    called before a round; its result returns True after the round to take it again. `culprit`: the
    job that ended too early; `hung`: the error of a job that hung instead.
    """

    runners: Sequence[Runner]
    _: KW_ONLY
    rounds: int
    seconds: float
    patience: float
    tell: Callable[[Progress], None]
    keep: Callable[[], object]
    enough: float = math.inf
    watch: Callable[[], Callable[[], bool]] = lambda: lambda: False
    partial: str | None = field(default="interrupted before the first round", init=False)
    turns: dict[str, list[Turn]] = field(init=False)
    culprit: Runner | None = field(default=None, init=False)
    hung: HangsError | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.turns = {runner.setting.name: [] for runner in self.runners}

    def run(self) -> None:
        """Measure. When a job ends or hangs before all rounds, `partial` says so and `turns` has
        the rest.

        Raises a DltuneError when a job does not come to a step, or ends before one turn is over.
        """
        self._start()
        first = {runner: self._first_turn(runner) for runner in self.runners}
        # the fixed cost of a turn is an equal share of each job's steps
        share = min(allotment.share for allotment in first.values())
        allotments = {runner: first[runner].shortened(share) for runner in self.runners}
        whole = sum(a.seconds for a in allotments.values())
        if self.rounds * whole > self.enough:
            self.rounds = min(self.rounds, max(LEAST_ROUNDS, int(self.enough / whole)))
        began = time.monotonic()
        number = 0
        while number < self.rounds:
            self.partial = f"interrupted in round {number + 1} of {self.rounds}"
            spoilt = self.watch()
            for place, runner in enumerate(self._order(number)):
                spent = (time.monotonic() - began) / number if number else whole
                left = spent * (self.rounds - number - place / len(self.runners))
                self.tell(Progress(runner.setting.name, number + 1, left))
                try:
                    self._turn(runner, allotments[runner], number)
                except JobEndedError:
                    self._ended_early(runner, number)
                    return
                except HangsError as error:
                    self._hangs(error, number)
                    return
            for runner in self.runners:
                runner.listen(0)  # messages of a waiting job's other processes
            if spoilt():
                for turns in self.turns.values():
                    turns[:] = [turn for turn in turns if turn.round < number]
                continue
            number += 1
            if number == self.rounds:
                self.partial = None
            self.keep()

    def _order(self, number: int) -> list[Runner]:
        """Rotated by one each round: a Latin square, each setting in every place alike."""
        first = number % len(self.runners)
        return [*self.runners[first:], *self.runners[:first]]

    def _start(self) -> None:
        """Wait until all jobs wait before their first step."""
        while waited := [runner for runner in self.runners if not runner.standing]:
            ready = len(self.runners) - len(waited)
            phase = f"waiting for the first steps of the jobs, {ready} of {len(self.runners)} ready"
            if any(runner.building and not runner.sightings.records for runner in waited):
                phase = "building the plugin for the framework of the job"
            self.tell(Progress(phase))
            for runner in waited:
                runner.listen(BRIEFLY)
                if runner.ended:
                    raise _under(runner, runner.why_not())
                if not runner.standing and time.monotonic() - runner.news > self.patience:
                    raise _under(runner, runner.why_not(), f"no message for {self.patience:g} s")

    def _first_turn(self, runner: Runner) -> Allotment:
        """Warm up, and find out how long this setting's turn is."""
        self.tell(Progress(f"warming up {runner.setting.name}"))
        try:
            found = first_turn(runner, self.seconds, idle=lambda: self._heed(runner))
        except JobEndedError:
            raise _ended_before_a_turn(runner) from None
        if found:
            return found
        raise _under(
            runner,
            UsageError(
                "the job's main step graph runs too rarely between its other graphs to be timed",
                remedy="profile and plan the job again",
            ),
        )

    def _heed(self, runner: Runner) -> None:
        """Raises HangsError when the job hangs in its turn."""
        limit = max(HUNG, self.patience)
        if time.monotonic() - runner.news > limit:
            raise _under(
                runner,
                HangsError("the job hangs in a step", remedy=HUNG_REMEDY),
                f"no message for {limit:g} s",
            )

    def _turn(self, runner: Runner, allotment: Allotment, number: int) -> None:
        def others() -> None:
            self._heed(runner)
            for other in self.runners:
                if other is not runner:
                    other.listen(0)

        taken = runner.take(allotment.executions, idle=others)
        steps = taken.steps[allotment.warm_up :]
        if steps:  # none where something else, such as another epoch's graphs, took the turn
            self.turns[runner.setting.name].append(
                Turn(
                    round=number,
                    steps=steps,
                    cpu_seconds=taken.used.cpu / allotment.steps,
                    voluntary=taken.used.voluntary / allotment.steps,
                    involuntary=taken.used.involuntary / allotment.steps,
                    faults=taken.used.faults / allotment.steps,
                    scheduling=taken.scheduling[allotment.warm_up :],
                )
            )

    def _ended_early(self, runner: Runner, number: int) -> None:
        if not any(self.turns.values()):
            raise _ended_before_a_turn(runner)
        self.culprit = runner
        self.partial = (
            f"the job under {runner.setting.name} ended (exit code {runner.exit_code}) in round "
            f"{number + 1} of {self.rounds}"
        )
        self.keep()

    def _hangs(self, error: HangsError, number: int) -> None:
        if not any(self.turns.values()):
            raise error
        self.hung = error
        self.partial = f"{error}, in round {number + 1} of {self.rounds}"
        self.keep()


def _under(runner: Runner, error: DltuneError, when: str = "") -> DltuneError:
    """The same error, saying under which setting, and when."""
    after = f" ({when})" if when else ""
    error.args = (f"under {runner.setting.name}{after}: {error}",)
    return error


def _ended_before_a_turn(runner: Runner) -> DltuneError:
    code = runner.exit_code
    message = f"the job ended with exit code {code} before anything was measured"
    if code:
        return _under(runner, JobFailed(message, code))
    return _under(runner, UsageError(message, remedy=MORE_STEPS))


# Processes of a contest: started together, ended together, their output out of the way

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def compete(
    contest: Contest, command: Sequence[str], *, verbose: bool, say: Callable[[str], None]
) -> None:
    """Start the command once for each setting, run the contest, end all jobs.

    What the jobs write goes to stderr when `verbose`; else it is kept aside, and the last lines of
    a job that died are shown. Raises as `Contest.run`, and UsageError when the command cannot be
    started.
    """
    with all_ended() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dltune-bench-")))
        logs = {}
        for number, runner in enumerate(contest.runners):
            logs[runner] = folder / f"{number}.log"
            with open(logs[runner], "wb") as log:
                to = 2 if verbose else log.fileno()
                applied = runner.setting.applied
                words, environment = rank_layout.with_own_port(
                    applied.command(command), applied.environment(os.environ)
                )
                job = Job(
                    words,
                    answer=runner.answer,
                    greet=runner.greet,
                    environment=environment,
                    stdout=to,
                    stderr=to,
                )
                stack.enter_context(job)
            # before the job is ended: who waits at the step barrier cannot handle a signal
            stack.callback(runner.release)
            runner.begin(job)
        try:
            contest.run()
        except DltuneError:
            _say_last_words(contest, logs, say)
            raise
        if contest.culprit:
            _say_last_words(contest, logs, say)


@contextlib.contextmanager
def all_ended() -> Iterator[contextlib.ExitStack]:
    """A stack for jobs: they are all ended, however often somebody presses Ctrl-C meanwhile."""
    before = {number: signal.getsignal(number) for number in INTERRUPTS}
    try:
        with contextlib.ExitStack() as stack:
            try:
                yield stack
            finally:
                for number in INTERRUPTS:
                    signal.signal(number, signal.SIG_IGN)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say_last_words(contest: Contest, logs: dict[Runner, Path], say: Callable[[str], None]) -> None:
    for runner in contest.runners:
        if not (runner.ended and runner.exit_code):
            continue
        if words := last_words(logs[runner], f"the job under {runner.setting.name}"):
            say(words)
