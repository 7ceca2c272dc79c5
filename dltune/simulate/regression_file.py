"""File of a trained regression model: a skops archive, which holds no code, with a header.

A pickle would execute whatever it says when it is read. A skops file is a zip archive of JSON and
arrays, and names the types that it is made of; only those of `_TRUSTED` and scikit-learn's own are
built. `dltune.json` in the same archive shows, before any of it is read, where the model belongs.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dltune import __version__
from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.schemas.machine import Machine
from dltune.schemas.profile import Placement, Profile
from dltune.simulate.regression import NAMES, Fitted, Layout, Trained, kind, require


def sound(regressor: Any, kind: type[Any], features: int) -> bool:
    """Return whether a regressor from a file can be used without harm: it is of exactly that kind,
    takes that many features, and its trees are trees.

    scikit-learn follows the node indices of a decision tree without looking where they lead: a tree
    from a hostile file could read any memory. Everything else in our regressors is arithmetic.
    """
    if type(regressor) is not kind or getattr(regressor, "n_features_in_", None) != features:
        return False
    return all(_is_tree(tree, features) for tree in _trees(regressor))


def _trees(regressor: Any) -> list[Any]:
    """The tree of each decision tree in it; None stands for what should have been one."""
    import numpy as np
    from sklearn.dummy import DummyRegressor
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
    from sklearn.tree import DecisionTreeRegressor

    if isinstance(regressor, DecisionTreeRegressor):
        return [getattr(regressor, "tree_", None)]
    if isinstance(regressor, (RandomForestRegressor, GradientBoostingRegressor)):
        members = list(np.ravel(np.asarray(regressor.estimators_, dtype=object)))
        trees = [m.tree_ if type(m) is DecisionTreeRegressor else None for m in members]
        boosts = isinstance(regressor, GradientBoostingRegressor)
        return [*trees, None] if boosts and type(regressor.init_) is not DummyRegressor else trees
    return []


def _is_tree(tree: Any, features: int) -> bool:
    """Children come after their parents and exist; inner nodes ask for features that exist."""
    import numpy as np
    from sklearn.tree._tree import Tree

    if type(tree) is not Tree or tree.n_features != features:
        return False
    number = np.arange(tree.node_count)
    left, right = tree.children_left, tree.children_right
    inner = left != -1
    for children in (left, right):
        if not np.all((children[inner] > number[inner]) & (children[inner] < tree.node_count)):
            return False
    asked = tree.feature[inner]
    return bool(np.all((asked >= 0) & (asked < features)) and np.all(right[~inner] == -1))


# The file

SCHEMA = "dltune.regression/1"
_HEADER = "dltune.json"
_DAY = (1980, 1, 1, 0, 0, 0)  # the same model gives the same bytes
# parts of scikit-learn's regressors that skops leaves to the reader to trust. They hold numbers;
# those of a tree are node indices that predict() follows without a look, so `sound` looks first.
_TRUSTED = (
    "sklearn.tree._tree.Tree",
    "sklearn._loss.loss.HalfSquaredError",
    "sklearn._loss._loss.CyHalfSquaredError",
    "sklearn._loss.link.IdentityLink",
    "sklearn._loss.link.Interval",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
)
AGAIN = "train the model again: dltune model train PROFILE... -o FILE"


class CaseModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of `Fitted` but its regressor, and `Trained.errors`."""

    threads: int
    placement: Placement
    error: float
    columns: tuple[int, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    mean: float
    scale: float


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`machine` and `fingerprint` are those of the profiles; `features` in the models' order."""

    schema: str
    dltune: str
    sklearn: str
    tensorflow: str
    machine: str
    fingerprint: str
    regressor: str
    logarithms: bool
    samples: tuple[tuple[int, Placement], ...]
    events: tuple[str, ...]
    features: tuple[str, ...]
    cases: tuple[CaseModel, ...]
    least: float
    most: float
    ops: int


def encode(trained: Trained, profiles: Sequence[Profile]) -> bytes:
    """The file's content; `profiles` are those it was trained on."""
    import sklearn
    from skops import io as skops

    first = profiles[0]
    header = Header(
        schema=SCHEMA,
        dltune=__version__,
        sklearn=sklearn.__version__,
        tensorflow=first.framework.version,
        machine=first.machine.name,
        fingerprint=first.machine.fingerprint,
        regressor=trained.regressor,
        logarithms=trained.logarithms,
        samples=trained.layout.samples,
        events=trained.layout.events,
        features=trained.layout.names,
        cases=tuple(
            CaseModel(*case, trained.errors[case], m.columns, m.means, m.scales, m.mean, m.scale)
            for case, m in trained.models.items()
        ),
        least=trained.least,
        most=trained.most,
        ops=trained.ops,
    )
    regressors = [model.regressor for model in trained.models.values()]
    buffer = io.BytesIO(skops.dumps(regressors, compression=zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(zipfile.ZipInfo(_HEADER, _DAY), msgspec.json.encode(header))
    return buffer.getvalue()


def load(path: Path) -> tuple[Header, Trained]:
    """Raises UsageError for a file that is no model, is damaged, holds types that dltune does not
    build, or was made by another dltune or scikit-learn."""
    require()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", remedy="check the path and its permissions"
        ) from None
    header = _header(data, path)
    import sklearn

    for name, made, here in (
        ("dltune", header.dltune, __version__),
        ("scikit-learn", header.sklearn, sklearn.__version__),
    ):
        if made != here:
            raise UsageError(
                f"{path} was trained with {name} {made}, but {name} {here} is installed",
                remedy=AGAIN,
            )
    layout = Layout(header.samples, header.events)
    regressors = _regressors(data, path)
    if not _fit(header, layout, regressors):
        raise UsageError(f"{path} is damaged: its models do not match its header", remedy=AGAIN)
    return header, Trained(
        regressor=header.regressor,
        logarithms=header.logarithms,
        layout=layout,
        models={
            (c.threads, c.placement): Fitted(
                c.columns, c.means, c.scales, c.mean, c.scale, regressor
            )
            for c, regressor in zip(header.cases, regressors, strict=True)
        },
        errors={(c.threads, c.placement): c.error for c in header.cases},
        least=header.least,
        most=header.most,
        ops=header.ops,
    )


def require_same(profiles: Sequence[Profile], names: Sequence[Path]) -> Machine:
    """The machine that all profiles were measured on, with one TensorFlow.

    Raises UsageError where they differ.
    """
    first = profiles[0]
    for profile, name in zip(profiles, names, strict=True):
        what = _difference(profile, first.machine.fingerprint, first.framework.version)
        if what:
            raise UsageError(
                f"{name} was measured {what}, but {names[0]} on {first.machine.name} with "
                f"{first.framework.title}",
                remedy="train a separate model for each machine and framework version",
            )
    return first.machine


def require_fits(header: Header, profile: Profile, path: Path, name: Path) -> None:
    """Raises UsageError where the model at `path` is for another machine or TensorFlow than the
    profile `name`."""
    what = _difference(profile, header.fingerprint, header.tensorflow)
    if what:
        raise UsageError(
            f"{name} was measured {what}, but {path} was trained on {header.machine} "
            f"({header.fingerprint}) with TensorFlow {header.tensorflow}",
            remedy="train a model on profiles from the same machine and TensorFlow version",
        )


def _difference(profile: Profile, fingerprint: str, tensorflow: str) -> str:
    if profile.machine.fingerprint != fingerprint:
        return f"on {profile.machine.name} ({profile.machine.fingerprint})"
    if profile.framework.version != tensorflow:
        return f"with {profile.framework.title}"
    return ""


def _header(data: bytes, path: Path) -> Header:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            text = archive.read(_HEADER)
    except (zipfile.BadZipFile, KeyError):
        raise UsageError(f"{path} is not a regression model of dltune", remedy=AGAIN) from None
    return documents.decode(text, Header, SCHEMA, str(path))


def _regressors(data: bytes, path: Path) -> list[Any]:
    from skops import io as skops
    from skops.io.exceptions import UntrustedTypesFoundException

    try:
        found = skops.loads(data, trusted=list(_TRUSTED))
    except UntrustedTypesFoundException as error:
        what = str(error).splitlines()[0]
        raise UsageError(
            f"{path} contains types that dltune does not load: {what}", remedy=AGAIN
        ) from None
    except Exception as error:  # whatever a damaged archive makes skops stumble over
        raise UsageError(f"{path} is damaged: {error}", remedy=AGAIN) from None
    return found if isinstance(found, list) else []


def _fit(header: Header, layout: Layout, regressors: Sequence[Any]) -> bool:
    """Whether the header is one that `encode` writes, and these are its regressors."""
    features = len(layout.names)
    return (
        layout.names == header.features
        and header.regressor in NAMES
        and len(regressors) == len(header.cases)
        and all(
            len(case.columns) == len(case.means) == len(case.scales)
            and all(0 <= column < features for column in case.columns)
            and sound(regressor, kind(header.regressor), len(case.columns))
            for case, regressor in zip(header.cases, regressors, strict=True)
        )
    )
