"""Number of executions in a job's turn, found in a first turn that is not counted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from dltune.turns.step_barrier import StepBarrier, Taken

# steps of a turn: one that warms up, and at least so many that count
WARM_UP, LEAST_STEPS = 1, 3
# executions of each step graph in a job's first turn, which is not counted: kernels are made in it,
# and it shows how long a step takes
FIRST_EXECUTIONS = 4
# how often the first turn is doubled where it showed no whole step
FIRST_TURNS = 5
# executions of each step graph that show whether some take much longer than the first ones: between
# short epochs, or next to others on the machine
EPOCHS = 32
# times as long as planned that a turn can take
LONGEST = 4.0


@dataclass(frozen=True)
class Allotment:
    """A turn: so many executions, at least `least`, which are so many steps and take so many
    seconds. The first `warm_up` of its steps do not count. `share`: of it, as much as takes no
    longer than planned, where some steps take much longer than the first ones."""

    executions: int
    steps: float
    seconds: float
    least: int
    warm_up: int = WARM_UP
    share: float = 1.0

    def shortened(self, share: float) -> Allotment:
        """Return the allotment with that share of the executions, but at least `least`."""
        executions = max(min(self.least, self.executions), math.ceil(self.executions * share))
        share = executions / self.executions
        return dataclasses.replace(
            self,
            executions=executions,
            steps=share * self.steps,
            seconds=share * self.seconds,
            share=1.0,
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
            # an execution can run several steps: each that counts needs another before it
            fewest = WARM_UP + 1 + (barrier.graphs > 1)
            executions = max(fewest, math.ceil(wanted * taken.per_step))
            steps = executions / taken.per_step
            counted = WARM_UP + least + (barrier.graphs > 1)
            fewest = max(fewest, math.ceil(counted * taken.per_step))
            found = Allotment(executions, steps, max(wanted, steps) * step, fewest)
            sample = EPOCHS * barrier.graphs
            if executions <= sample:
                return found
            return dataclasses.replace(found, share=_share(found, barrier.take(sample, idle)))
        executions *= 2
    return None


def _share(planned: Allotment, sample: Taken) -> float:
    """Share of a turn that takes at most LONGEST times the planned seconds, without the sample's
    longest execution: it can hold a validation, which does not come again soon."""
    longest = max(sample.steps, default=0.0) / min(1.0, sample.per_step or 1.0)
    seconds = LONGEST * planned.seconds * sample.executions / planned.executions
    return min(1.0, seconds / max(sample.seconds - longest, seconds))
