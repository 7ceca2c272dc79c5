"""The ops of a training step that compute gradients.

Some exist for nothing else (`ReluGrad`, `Conv2DBackpropFilter`), and the second output of a cross
entropy is a gradient. A product can also multiply as only the gradients of another product do: to
the input of that product, with its weight turned over; to its weight, with its other input. All
that depends on one of them is a gradient too, or is made of gradients: a model's own ops come
before.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from dltune.systems.parallelism.model.reading.step_view import StepView

Depends = Sequence[frozenset[int]]
_TYPES = re.compile(r"\w*(Grad|Backprop)\w*")
_NO_GRADIENT = ("BroadcastGradientArgs", "PreventGradient", "StopGradient")
_ENTROPY = "CrossEntropyWithLogits"
_PRODUCTS = ("MatMul", "BatchMatMul", "Einsum")
_TURNS = ("transpose_a", "transpose_b", "adj_x", "adj_y", "equation")


def is_product(family: str) -> bool:
    """True if an op of this family sums products of two tensors' numbers."""
    return family in _PRODUCTS or "Conv" in family


def gradients(
    view: StepView, informed: Collection[int], values: Mapping[int, frozenset[int]]
) -> set[int]:
    """Return the nodes of gradients. `informed`: nodes that depend on the examples; `values`: of
    each variable, the nodes that give out its value. A product with a weight's own transpose, as in
    a tied autoencoder, seems to be that weight's gradient, and is taken for it."""
    needs = depends(view, values)
    of_value = {node: variable for variable, found in values.items() for node in found}
    seeds = set()
    for node in informed:
        kind, reads = view.families[node], view.reads(node)
        typed = _TYPES.fullmatch(kind) and kind not in _NO_GRADIENT
        if (typed and not _transposed(view, node, of_value, needs)) or any(
            slot == 1 and view.families[before].endswith(_ENTROPY) for before, slot in reads
        ):
            seeds.add(node)
        if kind in _PRODUCTS:
            seeds.update(_by_weight(view, node, values, of_value, needs))
            seeds.update(_to_weight(view, node, of_value, needs))
    # a loss that gives out its gradient as a second output belongs to the model
    return view.downstream(node for node in seeds if not view.families[node].endswith(_ENTROPY))


def depends(view: StepView, values: Mapping[int, frozenset[int]]) -> Depends:
    """By node the variables that it needs."""
    bits = {variable: 1 << n for n, variable in enumerate(values)}
    given: dict[int, int] = defaultdict(int)
    for variable, nodes in values.items():
        for node in nodes:
            given[node] |= bits[variable]
    masks = [0] * len(view.nodes)
    for node in view.order:
        mask = given.get(node, 0)
        for before in view.needs[node]:
            mask |= masks[before]
        masks[node] = mask
    known = {mask: frozenset(v for v, bit in bits.items() if mask & bit) for mask in {*masks}}
    return [known[mask] for mask in masks]


def _transposed(view: StepView, node: int, of_value: Mapping[int, int], needs: Depends) -> bool:
    """True if it is a model's transposed convolution, the op of another's gradient: its other input
    does not depend on its weight."""
    if "BackpropInput" not in view.families[node]:
        return False
    reads = [before for before, _ in view.reads(node)]
    own = {of_value[before] for before in reads if before in of_value}
    return bool(own) and not any(own & needs[b] for b in reads if b not in of_value)


def _by_weight(
    view: StepView,
    node: int,
    values: Mapping[int, frozenset[int]],
    of_value: Mapping[int, int],
    needs: Depends,
) -> Iterator[int]:
    """The node, and the gradient that it reads, if it multiplies what depends on a weight with that
    weight turned over."""
    for one, other in _operands(view, node):
        variable = of_value.get(one)
        if variable is None or variable not in needs[other]:
            continue
        readers = {reader for value in values[variable] for reader in view.readers[value]}
        own = {reader for reader in readers if _turned(view, node, reader)}
        if own and own & view.upstream([other]):
            yield from (node, other)


def _to_weight(
    view: StepView, node: int, of_value: Mapping[int, int], needs: Depends
) -> Iterator[int]:
    """Yield the node, and the gradient that it reads, if the node multiplies the other input of a
    product with a weight by values that depend on that weight, and gives out as much as the weight
    has."""
    given = view.nodes[node].output_bytes
    for one, other in _operands(view, node):
        if one in of_value or other in of_value:
            return
        for reader in view.readers[one]:
            alike = view.families[reader] == view.families[node] and any(
                of_value.get(before) in needs[other] and view.nodes[before].output_bytes == given
                for before, _ in view.reads(reader)[:2]
            )
            if alike and reader in view.upstream([other]):
                yield from (node, other)


def _operands(view: StepView, node: int) -> list[tuple[int, int]]:
    reads = [before for before, _ in view.reads(node)[:2]]
    return [(reads[0], reads[1]), (reads[1], reads[0])] if len(reads) == 2 else []


def _turned(view: StepView, node: int, other: int) -> bool:
    """True if two products of one kind take their operands in different ways."""
    mine, its = view.keys[node], view.keys[other]
    if mine is None or its is None or view.families[node] != view.families[other]:
        return False
    return any(mine.attributes.get(name) != its.attributes.get(name) for name in _TURNS)
