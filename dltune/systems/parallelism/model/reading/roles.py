"""The roles of the ops of a training step: the model, its gradients, or the update of variables.

By structure (`gradients.py`). A *weight* is a variable that an op of the model reads and whose
update depends on a gradient. Computing behind the gradients with other variables is the
optimiser's.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dltune.base.errors import UsageError
from dltune.systems.parallelism.model.reading.gradients import (
    Depends,
    depends,
    gradients,
    is_product,
)
from dltune.systems.parallelism.model.reading.step_view import StepView

_UPDATE = re.compile(r"(Resource)?(Sparse)?(Assign|Apply|Scatter)\w*")
_FED = ("Arg", "Placeholder", "Recv")
_DRAWN = re.compile(r"(Stateless)?(Random|TruncatedNormal)\w*(?<!KeyCounter)(?<!Alg)")
# know of a tensor nothing but its shape
_SHAPES = ("Shape", "ShapeN", "Size", "Rank")
# hand on their inputs, in another shape or type
_SAME = ("ReadVariableOp", "Identity", "Reshape", "Squeeze", "ExpandDims", "Cast", "Transpose")


@dataclass(frozen=True, eq=False)
class Roles:
    """Sets of nodes. `data`: those that hand the step its examples; `informed`: these, and all that
    know more of them than their shapes. `weights`: by the node that names it, the nodes that give
    out a weight's value, also in another shape; `updates`: of each weight, the nodes that change
    it. `model`: what gradients are computed from; `optimizer`: the updates, and what else is
    computed between the gradients and them. `depends`: per node the weights that it needs."""

    data: frozenset[int]
    informed: frozenset[int]
    weights: Mapping[int, frozenset[int]]
    updates: Mapping[int, Sequence[int]]
    model: frozenset[int]
    gradients: frozenset[int]
    optimizer: frozenset[int]
    depends: Depends

    @functools.cached_property
    def values(self) -> frozenset[int]:
        """Return the values of all weights."""
        return frozenset().union(*self.weights.values())


def roles(view: StepView) -> Roles:
    """Raises UsageError for a step that trains nothing."""
    data = _data(view)
    informed = view.downstream(data, lambda node: view.families[node] not in _SHAPES)
    updates = {
        variable: [node for node in taken if _UPDATE.fullmatch(view.families[node])]
        for variable, taken in view.handles.items()
    }
    values = {
        variable: _values(view, variable, updates[variable], informed) for variable in updates
    }
    behind = gradients(view, informed, values)
    frontiers = {variable: _frontier(view, found, informed) for variable, found in values.items()}
    weights = {
        variable: found
        for variable, found in values.items()
        if behind.intersection(updates[variable]) and not frontiers[variable] <= behind
    }
    if not weights:
        raise UsageError(
            f"step {view.title} updates no weight with a gradient",
            remedy="profile a job that trains",
        )
    others = [v for v in values if v not in weights and frontiers[v] <= behind]
    optimizer = {node for variable in weights for node in updates[variable]}
    optimizer |= {
        node
        for node in view.downstream([node for variable in others for node in values[variable]])
        if node in behind or node not in informed
    }
    optimizer |= _processed(view, behind - optimizer, informed, weights)
    return Roles(
        data=frozenset(data),
        informed=frozenset(informed),
        weights=weights,
        updates={variable: updates[variable] for variable in weights},
        model=frozenset(view.upstream(behind) - behind - optimizer),
        gradients=frozenset(behind - optimizer),
        optimizer=frozenset(optimizer),
        depends=depends(view, weights),
    )


def _data(view: StepView) -> set[int]:
    """Return the nodes with examples: the values of an iterator, fed values except single numbers,
    and random values drawn to compute with, as a generator's input."""
    found, drawn = set(), set()
    for node, kind in enumerate(view.families):
        dtypes = {one.dtype for one in view.nodes[node].outputs}
        fed = kind in _FED and view.shapes.get((node, 0)) and not dtypes & {"resource", "variant"}
        if fed or kind.startswith("IteratorGetNext"):
            found.add(node)
        elif _DRAWN.fullmatch(kind):
            drawn.add(node)
    found |= {node for node in drawn if _computed_with(view, node, (found | drawn) - {node})}
    if not found:
        raise UsageError(
            f"step {view.title} has no op that supplies its samples",
            remedy="profile a step that gets its data from tf.data or as arguments",
        )
    return found


def _computed_with(view: StepView, node: int, others: set[int]) -> bool:
    """True if it comes to a product before it meets nodes that depend on others: no mask does."""
    beside = view.downstream(others)
    behind = view.downstream([node], lambda after: after not in beside)
    return node not in beside and any(is_product(view.families[after]) for after in behind)


def _values(
    view: StepView, variable: int, updates: Sequence[int], informed: set[int]
) -> frozenset[int]:
    """The nodes that give out a variable's value; itself where an op of the model takes it so."""
    taken = [node for node in view.handles[variable] if node not in updates]
    start = [node for node in taken if node not in informed]
    if len(start) < len(taken) or view.families[variable] == "Variable":
        start.append(variable)
    return frozenset(
        view.downstream(start, lambda node: view.families[node] in _SAME and node not in informed)
    )


def _frontier(view: StepView, values: frozenset[int], informed: set[int]) -> set[int]:
    """The first nodes behind a variable that know of the examples."""
    before = view.downstream(values, lambda node: node not in informed)
    return {after for node in before for after in view.readers[node] if after in informed}


def _processed(
    view: StepView, gradients: set[int], informed: set[int], weights: Mapping[int, frozenset[int]]
) -> set[int]:
    """Return nodes made of weights' gradients once these are there, such as their squares and
    norms: such a node neither needs the model nor leads to nodes that do."""
    values = frozenset().union(*weights.values())
    sizes = {view.nodes[node].output_bytes for node in values}
    model = informed - gradients | values
    flowing: set[int] = set()
    for node in reversed(view.order):
        if node in gradients and (
            not model.isdisjoint(view.needs[node]) or not flowing.isdisjoint(view.readers[node])
        ):
            flowing.add(node)
    found: set[int] = set()
    done: set[int] = set()
    for node in view.order:
        if node not in gradients:
            continue
        if node not in flowing and not done.isdisjoint(view.needs[node]):
            done.add(node)
            if not found.isdisjoint(view.needs[node]) or view.families[node] not in _SAME:
                found.add(node)
        elif flowing.isdisjoint(view.readers[node]) and sizes.intersection(
            one.bytes for one in view.nodes[node].outputs
        ):
            done.add(node)
    return found
