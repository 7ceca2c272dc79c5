"""Train the models of all cases from profiles, and predict with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dltune.documents.machine import Machine
from dltune.documents.profile import Op, Profile
from dltune.errors import UsageError
from dltune.model.curve import Case
from dltune.model.regression.cases import all_cases, sample_cases
from dltune.model.regression.features import Layout, at, known_filters
from dltune.model.regression.regressors import Fitted, fitted, require
from dltune.model.regression.scores import Scores, scores

if TYPE_CHECKING:
    import numpy as np

# an op's time below the clock's own resolution is no measurement
LEAST_SECONDS = 1e-7
# parts of the training data, each predicted by a model of the others, to find the error
FOLDS = 5


@dataclass(frozen=True)
class Trained:
    """A model per case. `errors`: by case the median relative error on ops it was not trained on.

    `least` and `most`: the shortest and longest time trained on, in seconds: what a regressor
    extrapolates beyond these, negative times among it, is cut off where a plan rests on it.
    `logarithms`: of features and times are taken, so that an error counts relative to an op's time;
    the paper takes them as they are.
    """

    regressor: str
    logarithms: bool
    layout: Layout
    models: Mapping[Case, Fitted]
    errors: Mapping[Case, float]
    least: float
    most: float
    ops: int

    def raw(self, case: Case, rows: Sequence[Sequence[float]]) -> list[float]:
        """Seconds as the regressor says, for rows of features. Raises KeyError for other cases."""
        import numpy as np

        predicted = self.models[case].predict(_inputs(rows, self.logarithms))
        # beyond e^20 s, or below e^-30 s, an extrapolated logarithm means nothing
        seconds = np.exp(np.clip(predicted, -30, 20)) if self.logarithms else predicted
        return [float(value) for value in seconds]


@dataclass(frozen=True)
class Data:
    """Ops with their features, and their seconds by case."""

    rows: tuple[tuple[float, ...], ...]
    seconds: tuple[Mapping[Case, float], ...]

    @classmethod
    def of(cls, profiles: Sequence[Profile], layout: Layout) -> Data:
        """The ops that have all samples."""
        rows, seconds = [], []
        for profile in profiles:
            known = known_filters(profile)
            for op in profile.ops:
                row = layout.row(op, known)
                if row is None or min(time.min for time in op.times) < LEAST_SECONDS:
                    continue
                rows.append(row)
                seconds.append({(time.threads, time.placement): time.min for time in op.times})
        return cls(tuple(rows), tuple(seconds))

    def at(self, case: Case) -> tuple[list[tuple[float, ...]], list[float]]:
        """Rows and seconds of the ops that were measured at `case`."""
        found = [(r, s[case]) for r, s in zip(self.rows, self.seconds, strict=True) if case in s]
        return [row for row, _ in found], [seconds for _, seconds in found]


def train(
    profiles: Sequence[Profile],
    machine: Machine,
    *,
    regressor: str,
    samples: int,
    logarithms: bool = False,
    folds: int = FOLDS,
) -> Trained:
    """A model for each case of the machine that the profiles measured.

    Without `folds` (0) the errors are not known (nan).
    Raises UsageError when scikit-learn is missing, when the machine has fewer thread counts than
    `samples`, or when too few ops were measured at the sample cases.
    """
    require()
    cases = all_cases(machine)
    try:
        layout = Layout.of(profiles, sample_cases(cases, samples))
    except ValueError:
        counts = len({threads for threads, _ in cases})
        raise UsageError(
            f"{samples} sample cases, and this machine has {counts} thread counts",
            remedy=f"use --samples {counts} or fewer",
        ) from None
    data = Data.of(profiles, layout)
    if len(data.rows) < 2 * FOLDS:
        raise UsageError(
            f"{len(data.rows)} ops were measured at all sample cases ({_told(layout.samples)}), "
            f"too few to train on ({2 * FOLDS} at least)",
            remedy="profile more ops, or more thread counts (--interval)",
        )
    models, errors = {}, {}
    for case in cases:
        rows, seconds = data.at(case)
        if len(rows) >= 2 * FOLDS:
            models[case] = _fitted(regressor, rows, seconds, logarithms)
            errors[case] = _error(regressor, rows, seconds, logarithms, folds)
    every = [value for seconds in data.seconds for value in seconds.values()]
    return Trained(
        regressor, logarithms, layout, models, errors, min(every), max(every), len(data.rows)
    )


def evaluated(trained: Trained, profiles: Sequence[Profile]) -> dict[Case, Scores]:
    """The paper's scores by case, over the ops that were measured there and at the samples.

    Raises UsageError when there is no such op.
    """
    data = Data.of(profiles, trained.layout)
    found = {}
    for case in trained.models:
        rows, seconds = data.at(case)
        if rows:
            found[case] = scores(trained.raw(case, rows), seconds)
    if not found:
        raise UsageError(
            f"no op of these profiles was measured at all sample cases "
            f"({_told(trained.layout.samples)})" + _events(trained.layout),
            remedy="profile again, with the counters and thread counts of the model's training",
        )
    return found


def has_samples(op: Op, layout: Layout) -> bool:
    return at(op, layout.samples) is not None


def _fitted(name: str, rows: Sequence[Any], seconds: Sequence[float], logarithms: bool) -> Fitted:
    import numpy as np

    y = np.asarray(seconds, dtype=float)
    return fitted(name, _inputs(rows, logarithms), np.log(y) if logarithms else y)


def _error(
    name: str, rows: Sequence[Any], seconds: Sequence[float], logarithms: bool, folds: int
) -> float:
    """The median of |predicted - y| / y over ops that the model was not trained on."""
    import numpy as np

    found: list[float] = []
    for fold in range(folds):
        kept = [i for i in range(len(rows)) if i % folds != fold]
        out = [i for i in range(len(rows)) if i % folds == fold]
        model = _fitted(name, [rows[i] for i in kept], [seconds[i] for i in kept], logarithms)
        predicted = model.predict(_inputs([rows[i] for i in out], logarithms))
        guesses = np.exp(np.clip(predicted, -30, 20)) if logarithms else predicted
        truth = np.asarray([seconds[i] for i in out])
        found += list(np.abs(guesses - truth) / truth)
    return float(np.median(found)) if found else math.nan


def _inputs(rows: Sequence[Sequence[float]], logarithms: bool) -> np.ndarray:
    import numpy as np

    x = np.asarray(rows, dtype=float)
    return np.log(x + 1e-9) if logarithms else x


def _told(samples: Sequence[Case]) -> str:
    return ", ".join(f"{threads} {placement}" for threads, placement in samples)


def _events(layout: Layout) -> str:
    return f", with the events {', '.join(layout.events)}" if layout.events else ""
