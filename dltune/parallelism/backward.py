"""Which operator each op of the backward pass computes gradients of.

By what it reads. A product with a weight is of the operator of that weight; a product with what an
operator's own product reads, of that one; other ops, of the last operator that gave out what they
read of the forward pass. What reads nothing of it goes with the op that takes its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dltune.parallelism.gradients import is_product
from dltune.parallelism.layers import Layers
from dltune.parallelism.step_view import Tensor

_VIEWS = ("Reshape", "Squeeze", "ExpandDims", "Identity", "Cast")


def owners(layers: Layers) -> dict[int, list[int]]:
    """By weight the operators that compute with it, in the order of the network; first the weights
    that operators begin with."""
    view, roles = layers.view, layers.roles
    found = {}
    for variable, values in roles.weights.items():
        behind = view.downstream(values, lambda node: node not in roles.informed)
        readers = {after for node in behind for after in view.readers[node]}
        found[variable] = sorted(
            {
                layers.operator[node]
                for node in readers
                if node in roles.informed and node in roles.model and node in layers.operator
            }
        )
    first = {b for draft in layers.drafts for b, _ in view.reads(draft.anchor)}
    return dict(sorted(found.items(), key=lambda one: first.isdisjoint(roles.weights[one[0]])))


def assigned(layers: Layers, own: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """By node of the backward pass the number of its operator. `own`: of `owners`."""
    view, roles = layers.view, layers.roles
    of_value = {node: v for v, values in roles.weights.items() for node in values}
    reach = _reach(layers, own)
    products = _products(layers)
    found: dict[int, int] = {}
    for node in reversed(view.order):
        if node not in roles.gradients:
            continue
        reads = view.reads(node)
        taken = [own[of_value[b]] for b, _ in reads if b in of_value]
        forward = [t for t in reads if t in layers.found.places]
        entropies = {b for b, _ in reads if view.families[b].endswith("EntropyWithLogits")}
        forward = [t for t in forward if t[0] not in entropies]
        alike = [n for t in forward for n in products.get(_root(layers, t), ())]
        alike = alike if is_product(view.families[node]) else []
        consumers = [found[after] for after in view.readers[node] if after in found]
        if taken and taken[0]:
            found[node] = taken[0][-1]
        elif alike:
            found[node] = _fitting(own, alike, reach[node])
        elif len(reach[node]) == 1 and not consumers:
            found[node] = min(reach[node])
        elif forward:
            found[node] = max(layers.operator[b] for b, _ in forward)
        elif consumers:
            found[node] = max(consumers)
        elif reach[node]:
            found[node] = max(reach[node])
    return found


def _root(layers: Layers, tensor: Tensor) -> Tensor:
    """What it is another shape of."""
    view = layers.view
    while view.families[tensor[0]] in _VIEWS and (reads := view.reads(tensor[0])):
        tensor = reads[0]
    return tensor


def _products(layers: Layers) -> dict[Tensor, list[int]]:
    """By what is multiplied there, the operators that begin with a product."""
    found: dict[Tensor, list[int]] = {}
    for number, draft in enumerate(layers.drafts):
        if is_product(layers.view.families[draft.anchor]):
            for tensor in layers.view.reads(draft.anchor)[:2]:
                found.setdefault(_root(layers, tensor), []).append(number)
    return found


def _reach(layers: Layers, own: Mapping[int, Sequence[int]]) -> list[frozenset[int]]:
    """Per node the operators whose weights it helps to update."""
    view = layers.view
    found: list[frozenset[int]] = [frozenset()] * len(view.nodes)
    targets = {
        node: frozenset(own[variable][-1:])
        for variable, nodes in layers.roles.updates.items()
        for node in nodes
    }
    behind = layers.roles.gradients | layers.roles.optimizer
    for node in reversed(view.order):
        if node in behind:
            found[node] = targets.get(node, frozenset()).union(
                *(found[after] for after in view.readers[node])
            )
    return found


def _fitting(own: Mapping[int, Sequence[int]], alike: Sequence[int], reach: frozenset[int]) -> int:
    """Of operators that multiply the same, that whose weight alone it leads to, if to one's."""
    alone = [number for number in alike if reach == {number}]
    learning = {number for numbers in own.values() for number in numbers}
    if alone:
        return alone[0]
    without = [number for number in alike if number not in learning]
    return (without or list(alike))[-1]
