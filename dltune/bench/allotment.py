"""How many executions a job's turn is, found in a first turn that is not counted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from dltune.bench.step_barrier import StepBarrier, Taken

# steps of a turn: one that warms up, and at least so many that count
WARM_UP, LEAST_STEPS = 1, 3
# executions of each step graph in a job's first turn, which is not counted: kernels are made in it,
# and it tells how long a step takes
FIRST_EXECUTIONS = 4
# how often the first turn is doubled where it showed no whole step
FIRST_TURNS = 5
# executions of each step graph that show whether some take much longer than the first ones: between
# short epochs, or beside others on the machine
EPOCHS = 32
# times as long as planned that a turn may take
LONGEST = 4.0


@dataclass(frozen=True)
class Allotment:
    """A turn: so many executions, which are so many steps and take so many seconds. The first
    `warm_up` of its steps do not count."""

    executions: int
    steps: float
    seconds: float
    warm_up: int = WARM_UP

    def shorter(self, taken: Taken) -> Allotment:
        """Of fewer executions where `taken`, a turn, was much longer than planned, also without its
        longest step (which may hold a validation that does not come again soon)."""
        planned = LONGEST * self.seconds * taken.executions / self.executions
        seconds = taken.seconds - max(taken.steps, default=0.0)
        if seconds <= planned:
            return self
        fewest = (self.warm_up + LEAST_STEPS) * self.executions / self.steps
        executions = max(self.executions * planned / seconds, fewest)
        part = min(1.0, math.ceil(executions) / self.executions)
        return dataclasses.replace(
            self,
            executions=round(part * self.executions),
            steps=part * self.steps,
            seconds=part * self.seconds,
        )


def first_turn(
    barrier: StepBarrier,
    seconds: float,
    least: int = LEAST_STEPS,
    idle: Callable[[], None] = lambda: None,
    first: int = FIRST_EXECUTIONS,
) -> Allotment | None:
    """Warm up, and find out how long the job's turn is: about so many seconds, and at least `least`
    steps that count. None when its main step graph runs too seldom among the others to be timed.
    `idle` as in `StepBarrier.take`; `first`: executions of each graph to begin with.

    Raises JobEndedError when the job ends first.
    """
    executions = first * barrier.graphs
    for _ in range(FIRST_TURNS):
        taken = barrier.take(executions, idle)
        if taken.steps[WARM_UP:] and taken.per_step:
            step = min(taken.steps)
            wanted = max(least, math.ceil(seconds / step)) + WARM_UP
            # with several step graphs the last step is not seen to end
            wanted += barrier.graphs > 1
            # one may run several steps: of each that counts another one must have been
            fewest = WARM_UP + 1 + (barrier.graphs > 1)
            executions = max(fewest, math.ceil(wanted * taken.per_step))
            steps = executions / taken.per_step
            found = Allotment(executions, steps, max(wanted, steps) * step)
            some = EPOCHS * barrier.graphs
            return found.shorter(barrier.take(some, idle)) if executions > some else found
        executions *= 2
    return None
