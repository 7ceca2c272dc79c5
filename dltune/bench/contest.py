"""The settings take turns, round after round, so that the machine's drift hits all alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

from dltune.base.errors import DltuneError, JobFailed, UsageError
from dltune.bench.runner import Runner
from dltune.schemas.bench import Turn
from dltune.turns.allotment import Allotment, first_turn
from dltune.turns.step_barrier import BRIEFLY, JobEndedError

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
