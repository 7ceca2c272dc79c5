"""The ten regressors that the paper tried, with scikit-learn's defaults, by name.

Three kernels of the support vector regression and three solvers of the perceptron make fourteen
rows. Raw times in seconds are tiny numbers, which regularisation and tolerances would take for
nothing, so features and target are standardised.
"""

from __future__ import annotations

import pkgutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dltune.base.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

# features a decision tree keeps; the paper chose four
SELECTED = 4
DEFAULT = "random forest"  # the most accurate one in docs/explanation/model.md


# where scikit-learn has each, and what it is told beside its defaults
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
