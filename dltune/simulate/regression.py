"""The paper's first model: regression on counters and times at a few sample cases (III-B).

`Layout` defines the features of an op, `fitted` trains one regressor, `train` trains the models of
all cases from profiles, and `Regression` predicts with them. All this needs scikit-learn and skops,
the extra `regression`.
"""

from __future__ import annotations

import math
import pkgutil
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dltune.analysis.flops import Filters, filters, moved, operations
from dltune.base.errors import UsageError
from dltune.schemas.machine import Machine
from dltune.schemas.profile import Op, OpTime, Placement, Profile
from dltune.simulate.op_time import Case, Prediction, all_cases

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike


# Features of an op

INSTRUCTIONS = "instructions"


@dataclass(frozen=True)
class Layout:
    """The features of an op: its time and counted events at the sample cases, and its work.

    Events are divided by the instructions of the same case where these were counted, as in the
    paper, "to make the feature values independent of total number of instructions"; where they were
    not, by the seconds of the case.

    `events` were counted for every op; `samples` are the cases.
    """

    samples: tuple[Case, ...]
    events: tuple[str, ...]

    @classmethod
    def of(cls, profiles: Sequence[Profile], samples: Sequence[Case]) -> Layout:
        """With the events that all ops of all profiles have at all samples."""
        counted = [
            {count.event for count in time.counts}
            for profile in profiles
            for op in profile.ops
            for time in at(op, samples) or ()
        ]
        common = set.intersection(*counted) if counted else ()
        return cls(tuple(samples), tuple(sorted(common)))

    @property
    def per(self) -> str:
        """What events are divided by."""
        return INSTRUCTIONS if INSTRUCTIONS in self.events else "seconds"

    @property
    def names(self) -> tuple[str, ...]:
        rates = [event for event in self.events if event != INSTRUCTIONS]
        found = []
        for threads, placement in self.samples:
            where = f"at {threads} {placement}"
            found.append(f"seconds {where}")
            found += [f"{event}/{self.per} {where}" for event in rates]
        return (*found, "operations", "bytes moved", "output bytes")

    def row(self, op: Op, known: Filters) -> tuple[float, ...] | None:
        """The features of an op in the order of `names`; None when a sample is missing."""
        times = at(op, self.samples)
        if times is None:
            return None
        row: list[float] = []
        for time in times:
            row.append(time.min)
            counts = {count.event: count.value for count in time.counts}
            if not set(self.events) <= counts.keys():
                return None
            whole = counts[INSTRUCTIONS] if self.per == INSTRUCTIONS else time.median
            rates = [counts[event] for event in self.events if event != INSTRUCTIONS]
            row += [rate / whole if whole > 0 else 0.0 for rate in rates]
        work = (operations(op, known) or 0, moved(op) or 0, op.output_bytes)
        return (*row, *map(float, work))


def at(op: Op, samples: Sequence[Case]) -> list[OpTime] | None:
    """The op's measurements at these cases; None when one is missing."""
    by_case = {(time.threads, time.placement): time for time in op.times}
    return [by_case[case] for case in samples] if by_case.keys() >= set(samples) else None


def sample_cases(cases: Sequence[Case], number: int) -> tuple[Case, ...]:
    """`number` of `cases`, spread evenly from the first to the last; one: the first.

    `cases` by rising thread count; samples have different counts, so that none is only another
    placement of the one before it. Raises ValueError when there are fewer counts than that.
    """
    by_count: dict[int, Case] = {}
    for case in cases:
        by_count.setdefault(case[0], case)
    first = list(by_count.values())
    if not 1 <= number <= len(first):
        raise ValueError(f"{number} sample cases of {len(first)} thread counts")
    last = len(first) - 1
    return tuple(first[round(i * last / max(number - 1, 1))] for i in range(number))


# Regressors: raw times in seconds are tiny numbers, which regularisation and tolerances would take
# for nothing, so features and target are standardised.

# features a decision tree keeps; the paper chose four
SELECTED = 4
DEFAULT = "random forest"  # the most accurate one in docs/explanation/model.md


# The ten regressors that the paper tried, by name: where scikit-learn has each, and its arguments
# that differ from scikit-learn's defaults. Three kernels of the support vector regression and three
# solvers of the perceptron make fourteen rows.
_REGRESSORS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "gradient boosting": ("ensemble:GradientBoostingRegressor", {"random_state": 0}),
    # a tree of neighbours would only be faster, and a file could not be trusted with one
    "k-neighbours": ("neighbors:KNeighborsRegressor", {"algorithm": "brute"}),
    "Theil-Sen": ("linear_model:TheilSenRegressor", {"random_state": 0}),
    "least squares": ("linear_model:LinearRegression", {}),
    # scikit-learn's own name for it since PassiveAggressiveRegressor was deprecated
    "passive aggressive": (
        "linear_model:SGDRegressor",
        {
            "loss": "epsilon_insensitive",
            "penalty": None,
            "learning_rate": "pa1",
            "eta0": 1.0,
            "random_state": 0,
        },
    ),
    "random forest": ("ensemble:RandomForestRegressor", {"random_state": 0}),
    "decision tree": ("tree:DecisionTreeRegressor", {"random_state": 0}),
    "SVR linear": ("svm:SVR", {"kernel": "linear"}),
    "SVR poly": ("svm:SVR", {"kernel": "poly"}),
    "SVR rbf": ("svm:SVR", {"kernel": "rbf"}),
    "Bayesian ARD": ("linear_model:ARDRegression", {}),
    **{
        f"MLP {solver}": (
            "neural_network:MLPRegressor",
            {"solver": solver, "random_state": 0, "max_iter": 1000},
        )
        for solver in ("sgd", "lbfgs", "adam")
    },
}
NAMES = tuple(_REGRESSORS)


def kind(name: str) -> type[Any]:
    """The class of the regressor of that name."""
    found: type[Any] = pkgutil.resolve_name(f"sklearn.{_REGRESSORS[name][0]}")
    return found


@dataclass(frozen=True)
class Fitted:
    """A trained regressor. `columns`: the features that it takes; these are standardised with
    `means` and `scales`, and its answer is in units of `scale` above `mean`."""

    columns: tuple[int, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    mean: float
    scale: float
    regressor: Any

    def predict(self, x: np.ndarray) -> np.ndarray:
        """x: ops x all features. One answer for each op."""
        import numpy as np

        chosen = (x[:, list(self.columns)] - np.asarray(self.means)) / np.asarray(self.scales)
        answers: np.ndarray = self.regressor.predict(chosen) * self.scale + self.mean
        return answers


def fitted(name: str, x: np.ndarray, y: np.ndarray) -> Fitted:
    """Train on the features that a decision tree of all of them uses most.

    x: ops x features; y: one target for each op.
    """
    import numpy as np
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.tree import DecisionTreeRegressor

    importances = DecisionTreeRegressor(random_state=0).fit(x, y).feature_importances_
    chosen = sorted(int(i) for i in np.argsort(-importances, kind="stable")[:SELECTED])
    columns = tuple(i for i in chosen if importances[i] > 0) or (0,)
    kept = x[:, list(columns)]
    means, scales = kept.mean(axis=0), kept.std(axis=0)
    scales[scales == 0] = 1.0
    mean, scale = float(y.mean()), float(y.std()) or 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it shows in the accuracy
        regressor = kind(name)(**_REGRESSORS[name][1])
        regressor.fit((kept - means) / scales, (y - mean) / scale)
    return Fitted(columns, tuple(means.tolist()), tuple(scales.tolist()), mean, scale, regressor)


def require() -> None:
    """Raises UsageError without scikit-learn or skops."""
    import importlib.util

    missing = [name for name in ("sklearn", "skops") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"regression models need {' and '.join(missing)}, which this Python lacks",
            remedy="install the extra: pip install 'dltune[regression]'",
        )


# Models of all cases

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
