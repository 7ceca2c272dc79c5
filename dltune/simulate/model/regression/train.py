"""Train the models of all cases from profiles, and predict with them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dltune.analysis.convolution import filters
from dltune.base.errors import UsageError
from dltune.schemas.machine import Machine
from dltune.schemas.profile import Placement, Profile
from dltune.simulate.model.curve import Case, all_cases
from dltune.simulate.model.prediction import Prediction
from dltune.simulate.model.regression.features import Layout, sample_cases
from dltune.simulate.model.regression.regressors import Fitted, fitted, require

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

# an op's time below the clock's own resolution is no measurement
LEAST_SECONDS = 1e-7
# parts of the training data, each predicted by a model of the others, to find the error
FOLDS = 5

# an op's features, and its seconds by case
_Measured = tuple[tuple[float, ...], dict[Case, float]]


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
        seconds: list[float] = _predicted(self.models[case], rows, self.logarithms).tolist()
        return seconds


@dataclass(frozen=True)
class Regression:
    """A trained model, bound to the profile whose ops it predicts.

    Predictions by op key and case. `missing`: keys of ops that lack a sample case.
    """

    predictions: Mapping[str, Mapping[Case, Prediction]]
    missing: tuple[str, ...]

    @classmethod
    def on(cls, trained: Trained, profile: Profile) -> Regression:
        """Predicts all ops of the profile that were measured at the sample cases.

        Times are held within those that were trained on: regressors know no sign. The error is the
        median one of each case in training, on ops left out of it.
        """
        known = filters(profile.ops)
        rows, missing = {}, []
        for op in profile.ops:
            row = trained.layout.row(op, known)
            if row is not None:
                rows[op.key] = row
            elif op.times:
                missing.append(op.key)
        found: dict[str, dict[Case, Prediction]] = {key: {} for key in rows}
        for case in trained.models if rows else ():
            predicted = trained.raw(case, list(rows.values()))
            for key, raw in zip(rows, predicted, strict=True):
                seconds = min(max(raw, trained.least), trained.most)
                found[key][case] = Prediction(seconds, seconds * trained.errors[case])
        return cls(found, tuple(missing))

    def predict(self, key: str, threads: int, placement: Placement) -> Prediction:
        """Raises KeyError for an op that lacks a sample, or a case that has no model."""
        return self.predictions[key][threads, placement]


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
            f"--samples {samples} is too many: this machine has {counts} thread counts",
            remedy=f"use --samples {counts} or fewer",
        ) from None
    ops = _measured(profiles, layout)
    if len(ops) < 2 * FOLDS:
        raise UsageError(
            f"too few ops to train on: {len(ops)} were measured at all sample cases "
            f"({_told(layout.samples)}), but at least {2 * FOLDS} are needed",
            remedy="profile more ops, or more thread counts (dltune profile --interval)",
        )
    models, errors = {}, {}
    for case in cases:
        rows, seconds = _at(case, ops)
        if len(rows) >= 2 * FOLDS:
            models[case] = _fitted(regressor, rows, seconds, logarithms)
            errors[case] = _error(regressor, rows, seconds, logarithms, folds)
    every = [value for _, seconds in ops for value in seconds.values()]
    return Trained(regressor, logarithms, layout, models, errors, min(every), max(every), len(ops))


def evaluated(trained: Trained, profiles: Sequence[Profile]) -> dict[Case, Scores]:
    """The paper's scores by case, over the ops that were measured there and at the samples.

    Raises UsageError when there is no such op.
    """
    ops = _measured(profiles, trained.layout)
    found = {}
    for case in trained.models:
        rows, seconds = _at(case, ops)
        if rows:
            found[case] = scores(trained.raw(case, rows), seconds)
    if not found:
        raise UsageError(
            f"no op of these profiles was measured at all sample cases of the model "
            f"({_told(trained.layout.samples)})" + _events(trained.layout),
            remedy="profile the job again with the options of the training profiles",
        )
    return found


def _measured(profiles: Sequence[Profile], layout: Layout) -> list[_Measured]:
    """The ops that have all samples."""
    found = []
    for profile in profiles:
        known = filters(profile.ops)
        for op in profile.ops:
            row = layout.row(op, known)
            if row is not None and min(time.min for time in op.times) >= LEAST_SECONDS:
                found.append((row, {(time.threads, time.placement): time.min for time in op.times}))
    return found


def _at(case: Case, ops: Sequence[_Measured]) -> tuple[list[tuple[float, ...]], list[float]]:
    """Rows and seconds of the ops that were measured at `case`."""
    found = [(row, seconds[case]) for row, seconds in ops if case in seconds]
    return [row for row, _ in found], [seconds for _, seconds in found]


class Scores(NamedTuple):
    """The paper's two measures of a model (section III-B).

    `accuracy` as below. `r2`: 1 - sum((y - predicted)^2) / sum((y - mean y)^2), which only the
    longest ops decide. `ops`: how many were predicted.
    """

    accuracy: float
    r2: float
    ops: int


def scores(predicted: Sequence[float], measured: Sequence[float]) -> Scores:
    """Both in seconds. Raises ValueError when nothing was measured."""
    near = accuracy(predicted, measured)
    mean = statistics.fmean(measured)
    variance = sum((y - mean) ** 2 for y in measured)
    left = sum((y - guess) ** 2 for guess, y in zip(predicted, measured, strict=True))
    return Scores(near, 1 - left / variance if variance else float(left == 0), len(measured))


def accuracy(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """1 - mean(|measured - predicted| / measured), both in seconds: negative when times are wrong
    by more than themselves.

    The paper's formula (Table V) is lost in its text; this is the usual one. Raises ValueError when
    nothing was measured.
    """
    if not measured:
        raise ValueError("no measured time to compare with")
    pairs = zip(predicted, measured, strict=True)
    return 1 - statistics.fmean(abs(y - guess) / y for guess, y in pairs)


def _fitted(name: str, rows: ArrayLike, seconds: ArrayLike, logarithms: bool) -> Fitted:
    import numpy as np

    y = np.asarray(seconds, dtype=float)
    return fitted(name, _inputs(rows, logarithms), np.log(y) if logarithms else y)


def _error(name: str, rows: ArrayLike, seconds: ArrayLike, logarithms: bool, folds: int) -> float:
    """The median of |predicted - y| / y over ops that the model was not trained on."""
    import numpy as np

    x, y = np.asarray(rows, dtype=float), np.asarray(seconds, dtype=float)
    found: list[float] = []
    for fold in range(folds):
        out = np.arange(len(y)) % folds == fold
        model = _fitted(name, x[~out], y[~out], logarithms)
        found += list(np.abs(_predicted(model, x[out], logarithms) - y[out]) / y[out])
    return float(np.median(found)) if found else math.nan


def _predicted(model: Fitted, rows: ArrayLike, logarithms: bool) -> np.ndarray:
    """Seconds as the regressor says."""
    import numpy as np

    predicted = model.predict(_inputs(rows, logarithms))
    # beyond e^20 s, or below e^-30 s, an extrapolated logarithm means nothing
    return np.exp(np.clip(predicted, -30, 20)) if logarithms else predicted


def _inputs(rows: ArrayLike, logarithms: bool) -> np.ndarray:
    import numpy as np

    x = np.asarray(rows, dtype=float)
    return np.log(x + 1e-9) if logarithms else x


def _told(samples: Sequence[Case]) -> str:
    return ", ".join(f"{threads} {placement}" for threads, placement in samples)


def _events(layout: Layout) -> str:
    return f", with the events {', '.join(layout.events)}" if layout.events else ""
