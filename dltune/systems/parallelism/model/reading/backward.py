"""The operator whose gradients each op of the backward pass computes.

Decided by the op's inputs. A product with a weight is of an operator with that weight; a product
with an input of an operator's product, of that operator; other ops, of the last operator that gave
out their inputs from the forward pass. An op that reads nothing of the forward pass goes with the
op that takes its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dltune.systems.parallelism.model.reading.gradients import is_product
from dltune.systems.parallelism.model.reading.layers import Layers
from dltune.systems.parallelism.model.reading.step_view import Tensor

Owners = Mapping[int, Sequence[int]]
_VIEWS = ("Reshape", "Squeeze", "ExpandDims", "Identity", "Cast")


def owners(layers: Layers) -> Owners:
    """By weight the operators that compute with it, in the order of the network; first the weights
    that operators begin with."""
    view, roles = layers.view, layers.roles
    found = {}
    for variable, values in roles.weights.items():
        behind = view.downstream(values, lambda node: node not in roles.informed)
        readers = {after for node in behind for after in view.readers[node]}
        forward = readers & roles.informed & roles.model & layers.operator.keys()
        found[variable] = sorted({layers.operator[node] for node in forward})
    first = {before for draft in layers.drafts for before, _ in view.reads(draft.anchor)}
    return dict(sorted(found.items(), key=lambda one: first.isdisjoint(roles.weights[one[0]])))


def assigned(layers: Layers, own: Owners) -> dict[int, int]:
    """By node of the backward pass the number of its operator. `own`: of `owners`."""
    view, roles = layers.view, layers.roles
    of_value = {node: v for v, values in roles.weights.items() for node in values}
    forward = [_forward(layers, node) for node in range(len(view.nodes))]
    level = _levels(layers, forward)
    reach = _reach(layers, own)
    products = _products(layers)
    found: dict[int, int] = {}
    for node in reversed(view.order):
        if node not in roles.gradients:
            continue
        weights = [own[of_value[b]] for b in view.needs[node] if b in of_value]
        # of a variable that is not trained
        fixed = [t for t in view.reads(node) if view.families[t[0]] == "ReadVariableOp"]
        weights += [products[t] for t in fixed if t[0] not in of_value and t in products]
        consumers = [found[after] for after in view.readers[node] if after in found]
        alike = [n for t in forward[node] for n in products.get(_root(layers, t), ())]
        if not forward[node] and (pools := _pools(layers, node, level[node])):
            found[node] = pools[-1]
        elif weights and weights[0]:
            found[node] = max((n for n in weights[0] if n <= level[node]), default=weights[0][-1])
        elif alike and is_product(view.families[node]):
            found[node] = _fitting(own, alike, reach[node])
        elif len(reach[node]) == 1 and not consumers:
            found[node] = min(reach[node])
        elif computed := [t for t in forward[node] if not _data(layers, t)]:
            found[node] = max(layers.operator[before] for before, _ in computed)
        elif consumers or reach[node]:
            found[node] = max(consumers or reach[node])
    return found


def _forward(layers: Layers, node: int) -> list[Tensor]:
    """Return its inputs from the forward pass; the second output of a cross entropy is none of
    it."""
    view = layers.view
    return [
        tensor
        for tensor in view.reads(node)
        if tensor in layers.found.places
        and not (tensor[1] == 1 and view.families[tensor[0]].endswith("EntropyWithLogits"))
    ]


def _data(layers: Layers, tensor: Tensor) -> bool:
    """True if the tensor is as the step receives it, apart from work on each position."""
    return layers.drafts[layers.found.places[tensor].operator].data


def _levels(layers: Layers, forward: Sequence[Sequence[Tensor]]) -> list[int]:
    """Return, by node of the backward pass, how far down the network it has come: the last operator
    of whose output the node, or else its inputs, depend."""
    view = layers.view
    found = [len(layers.drafts)] * len(view.nodes)
    for node in view.order:
        if node in layers.roles.gradients:
            numbers = [layers.operator[before] for before, _ in forward[node]]
            found[node] = max(numbers) if numbers else min(found[b] for b in view.needs[node])
            if is_product(view.families[node]):
                found[node] = min(found[before] for before in view.needs[node])
    return found


def _root(layers: Layers, tensor: Tensor) -> Tensor:
    """Return the tensor of which this tensor is another shape."""
    view = layers.view
    while view.families[tensor[0]] in _VIEWS and (reads := view.reads(tensor[0])):
        tensor = reads[0]
    return tensor


def _products(layers: Layers) -> dict[Tensor, list[int]]:
    """Return the operators that begin with a product, by the multiplied tensors."""
    found: dict[Tensor, list[int]] = {}
    for number, draft in enumerate(layers.drafts):
        if is_product(layers.view.families[draft.anchor]):
            for tensor in layers.view.reads(draft.anchor)[:2]:
                found.setdefault(_root(layers, tensor), []).append(number)
    return found


def _pools(layers: Layers, node: int, level: int) -> list[int]:
    """Return the poolings up to there in the network whose gradient it can be."""
    key = layers.view.keys[node]
    if key is None or not key.family.endswith("PoolGrad"):
        return []
    found = []
    for number, draft in enumerate(layers.drafts):
        its = layers.view.keys[draft.anchor]
        if its is not None and f"{its.family}Grad" == key.family:
            shape = layers.found.places[draft.anchor, 0].shape
            if number <= level and shape == key.inputs[-1].shape:
                found.append(number)
    return found


def _reach(layers: Layers, own: Owners) -> list[frozenset[int]]:
    """Per node the operators whose weights it helps to update."""
    view = layers.view
    found: list[frozenset[int]] = [frozenset()] * len(view.nodes)
    targets = {
        node: frozenset(own[variable][-1:])
        for variable, nodes in layers.roles.updates.items()
        for node in nodes
    }
    roles = layers.roles
    for node in reversed(view.order):
        after = [one for one in view.readers[node] if found[one]]
        if node in roles.optimizer:
            found[node] = targets.get(node, frozenset()).union(*(found[one] for one in after))
        elif node in roles.gradients:
            # an update that takes one gradient can need all, to clip by their norm
            updating = [found[one] for one in after if one in roles.optimizer]
            own_update = frozenset.intersection(*updating) if updating else frozenset()
            found[node] = own_update.union(*(found[one] for one in after if one in roles.gradients))
    return found


def _fitting(own: Owners, alike: Sequence[int], reach: frozenset[int]) -> int:
    """Return, of operators that multiply the same, the operator whose weight alone it leads to, if
    it leads to a single operator's."""
    alone = [number for number in alike if reach == {number}]
    learning = {number for numbers in own.values() for number in numbers}
    without = [number for number in alike if number not in learning]
    return (alone or without or alike)[-1]
