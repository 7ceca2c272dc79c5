"""Whether a regressor from a file can be asked without harm.

scikit-learn follows the node indices of a decision tree without looking where they lead: a tree
from a hostile file could read any memory. Everything else in our regressors is arithmetic.
"""

from __future__ import annotations

from typing import Any


def sound(regressor: Any, kind: type[Any], features: int) -> bool:
    """Whether it is of exactly that kind, takes that many features, and its trees are trees."""
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
