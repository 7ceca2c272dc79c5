"""Other searches for the best combination, as they are used: each measures one combination at a
time, in a process of its own, and takes the fastest it has seen.

They measure the job as given first. A combination that comes again is not measured again.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable

from settings_table import Replayed, Table

from dltune.schemas.settings import Choice
from dltune.tune.candidates import AS_GIVEN, Candidate, Refused

# asked for known combinations so many times in a row, a search has come to its end
STUCK = 50
Search = Callable[[Table, "Measuring", random.Random], None]


class BudgetSpent(Exception):
    pass


class Measuring:
    """What a combination takes: the median of `turns` turns of a fresh process."""

    def __init__(self, evaluator: Replayed, turns: int) -> None:
        self._evaluator = evaluator
        self._turns = turns
        self._stuck = 0
        self.seen: dict[Candidate, float] = {}
        self(AS_GIVEN)

    def __call__(self, candidate: Candidate) -> float:
        """Raises BudgetSpent."""
        if candidate in self.seen:
            self._stuck += 1
            if self._stuck > STUCK:
                raise BudgetSpent
            return self.seen[candidate]
        self._stuck = 0
        if self._evaluator.start(candidate):
            self.seen[candidate] = float("inf")
        else:
            taken: list[float] = []
            while len(taken) < self._turns and self._evaluator.left() > 0:
                found = self._evaluator.round([candidate])[candidate]
                assert not isinstance(found, Refused)
                taken.append(found)
            self._evaluator.drop(candidate)
            if len(taken) < self._turns:
                raise BudgetSpent
            self.seen[candidate] = statistics.median(taken)
        if self._evaluator.left() <= 0:
            raise BudgetSpent
        return self.seen[candidate]

    @property
    def chosen(self) -> Candidate:
        return min(self.seen, key=self.seen.__getitem__, default=AS_GIVEN)


def at(table: Table, places: dict[str, int]) -> Candidate:
    """The combination at these places of the settings' values; 0 leaves one as the job has it."""
    return tuple(
        sorted(
            Choice(name, table.values[name][place - 1]) for name, place in places.items() if place
        )
    )


def random_search(table: Table, measuring: Measuring, lot: random.Random) -> None:
    ranges = [range(len(values) + 1) for values in table.values.values()]
    every = list(itertools.product(*ranges))
    lot.shuffle(every)
    for places in every:
        measuring(at(table, dict(zip(table.values, places, strict=True))))


def nelder_mead(table: Table, measuring: Measuring, lot: random.Random) -> None:
    """On the values' places, rounded, as TensorTuner does with thread counts; again from another
    simplex when one has come together."""
    from scipy.optimize import minimize

    sizes = [len(values) for values in table.values.values()]
    begin = [0.0] * len(sizes)
    while True:
        simplex = [begin]
        for axis, size in enumerate(sizes):
            corner = list(begin)
            corner[axis] = size if begin[axis] <= size / 2 else 0.0
            simplex.append(corner)

        def value(point: list[float]) -> float:
            places = [min(size, max(0, round(x))) for x, size in zip(point, sizes, strict=True)]
            found = measuring(at(table, dict(zip(table.values, places, strict=True))))
            return min(found, 1e9)

        minimize(value, begin, method="Nelder-Mead",
                 options={"initial_simplex": simplex, "xatol": 0.3, "fatol": 1e-6})  # fmt: skip
        begin = [float(lot.randint(0, size)) for size in sizes]


def tpe(table: Table, measuring: Measuring, lot: random.Random) -> None:
    """Optuna's tree-structured Parzen estimator, as it is by default (pip install optuna)."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=lot.randrange(2**31)))
    study.enqueue_trial(dict.fromkeys(table.values, 0))
    while True:
        trial = study.ask()
        places = {
            name: trial.suggest_categorical(name, list(range(len(values) + 1)))
            for name, values in table.values.items()
        }
        study.tell(trial, min(measuring(at(table, places)), 1e9))


RIVALS: dict[str, Search] = {
    "random": random_search,
    "Nelder-Mead": nelder_mead,
    "TPE": tpe,
}
