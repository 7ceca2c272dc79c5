"""What the ops of a training step are for: the model, its gradients, or the update of variables.

By structure. What a gradient is computed by is known where its op exists for nothing else
(`ReluGrad`, `Conv2DBackpropFilter`, the second output of a cross entropy) or multiplies as only the
gradients of a product do, and so is all that depends on it: a model's own ops come before its
gradients. A *weight* is a variable that an op of
the model reads and whose update depends on a gradient. What reads no weights but other variables
behind the gradients is the optimiser's.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dltune.errors import UsageError
from dltune.parallelism.step_view import StepView

# know of a tensor nothing but its shape
_SHAPES = ("Shape", "ShapeN", "Size", "Rank")
_UPDATE = re.compile(r"(Resource)?(Sparse)?(Assign|Apply|Scatter)\w*")
_GRADIENT = re.compile(r"\w*(Grad|Backprop)\w*")
_NO_GRADIENT = ("BroadcastGradientArgs", "PreventGradient", "StopGradient")
_ENTROPY = "CrossEntropyWithLogits"
PRODUCTS = ("MatMul", "BatchMatMul", "Einsum")
_FED = ("Arg", "Placeholder", "Recv")
_DRAWN = re.compile(r"(Stateless)?(Random|TruncatedNormal)\w*(?<!KeyCounter)(?<!Alg)")
# hand on what they read, in another shape or type
_SAME = ("ReadVariableOp", "Identity", "Reshape", "Squeeze", "ExpandDims", "Cast", "Transpose")


@dataclass(frozen=True, eq=False)
class Roles:
    """Sets of nodes. `data`: those that hand the step its examples; `informed`: these, and all that
    know more of them than their shapes.
    `weights`: by the node that names it, the nodes that give out a weight's value, also in another
    shape. `updates`: of each weight, the nodes that change it. `optimizer`: these, and what else is
    computed between the gradients and them. `depends`: per node the weights that it needs."""

    data: frozenset[int]
    informed: frozenset[int]
    weights: Mapping[int, frozenset[int]]
    updates: Mapping[int, Sequence[int]]
    gradients: frozenset[int]
    optimizer: frozenset[int]
    model: frozenset[int]
    depends: Sequence[frozenset[int]]

    @functools.cached_property
    def values(self) -> frozenset[int]:
        """Of all weights."""
        return frozenset().union(*self.weights.values())


def roles(view: StepView) -> Roles:
    """Raises UsageError for a step that trains nothing."""
    data = _data(view)
    from_data = view.downstream(data, lambda node: view.families[node] not in _SHAPES)
    updates = {
        variable: [node for node in taken if _UPDATE.fullmatch(view.families[node])]
        for variable, taken in view.handles.items()
    }
    values = {
        variable: frozenset(
            view.downstream(
                [node for node in taken if node not in updates[variable]]
                if view.families[variable] != "Variable"
                else [variable],
                lambda node: view.families[node] in _SAME and node not in from_data,
            )
        )
        for variable, taken in view.handles.items()
    }
    changed = [v for v in values if any(node in from_data for node in updates[v])]
    gradients = _gradients(view, from_data, values, _depends(view, values))
    weights = {}
    for variable in changed:
        frontier = _frontier(view, values[variable], from_data)
        if not frontier <= gradients and gradients & set(updates[variable]):
            weights[variable] = values[variable]
    if not weights:
        raise UsageError(
            f"step {view.title} updates no weight by a gradient",
            remedy="profile a step of training",
        )
    others = [
        node
        for variable, found in values.items()
        if variable not in weights and _frontier(view, found, from_data) <= gradients
        for node in found
    ]
    own = {node for variable in weights for node in updates[variable]}
    own |= {node for node in view.downstream(others) if node in gradients or node not in from_data}
    # a gradient's square and the like, beside the gradient that the optimiser reads
    own |= {
        node
        for node in gradients - own
        if {*view.readers[node]} <= own
        and any({*view.readers[before]} & own for before in view.needs[node])
        and all(before in gradients for before in view.needs[node] if before in from_data)
    }
    model = view.upstream(gradients) - gradients - own
    return Roles(
        data=frozenset(data),
        informed=frozenset(from_data),
        weights=weights,
        updates={variable: updates[variable] for variable in weights},
        gradients=frozenset(gradients - own),
        optimizer=frozenset(own),
        model=frozenset(model),
        depends=_depends(view, weights),
    )


def _data(view: StepView) -> set[int]:
    """Nodes with examples: what an iterator gives, what is fed but single numbers, and what is
    drawn to compute with, as a generator's input."""
    found = set()
    for node, kind in enumerate(view.families):
        dtypes = {one.dtype for one in view.nodes[node].outputs}
        fed = kind in _FED and view.shapes.get((node, 0)) and not dtypes & {"resource", "variant"}
        if fed or kind.startswith("IteratorGetNext"):
            found.add(node)
    drawn = {node for node, kind in enumerate(view.families) if _DRAWN.fullmatch(kind)}
    more = set()
    for node in drawn:
        # what a mask is drawn for depends on other data
        beside = view.downstream((found | drawn) - {node})
        behind = view.downstream([node], lambda after, beside=beside: after not in beside)
        if node not in beside and any(is_product(view.families[after]) for after in behind):
            more.add(node)
    found |= more
    if not found:
        raise UsageError(f"no op of step {view.title} hands it its examples")
    return found


def is_product(family: str) -> bool:
    return family in PRODUCTS or "Conv" in family


def _depends(view: StepView, values: Mapping[int, frozenset[int]]) -> Sequence[frozenset[int]]:
    given = defaultdict(set)
    for variable, nodes in values.items():
        for node in nodes:
            given[node].add(variable)
    bits = {variable: 1 << n for n, variable in enumerate(values)}
    masks = [0] * len(view.nodes)
    for node in view.order:
        mask = sum(bits[variable] for variable in given.get(node, ()))
        for before in view.needs[node]:
            mask |= masks[before]
        masks[node] = mask
    known = {mask: frozenset(v for v, bit in bits.items() if mask & bit) for mask in {*masks}}
    return [known[mask] for mask in masks]


def _frontier(view: StepView, values: frozenset[int], from_data: set[int]) -> set[int]:
    """The first nodes behind a variable that know of the examples."""
    before = view.downstream(values, lambda node: node not in from_data)
    return {after for node in before for after in view.readers[node] if after in from_data}


def _gradients(
    view: StepView,
    from_data: set[int],
    values: Mapping[int, frozenset[int]],
    depends: Sequence[frozenset[int]],
) -> set[int]:
    of_value = {node: variable for variable, found in values.items() for node in found}
    seeds = set()
    for node in from_data:
        kind, reads = view.families[node], view.reads(node)
        if _GRADIENT.fullmatch(kind) and kind not in _NO_GRADIENT:
            # a transposed convolution of the model is the op of another's gradient
            own = [of_value[before] for before, _ in reads if before in of_value]
            own = [
                variable
                for variable in own
                if "BackpropInput" in kind
                and not any(variable in depends[b] for b, _ in reads if of_value.get(b) != variable)
            ]
            if not own:
                seeds.add(node)
        if any(slot == 1 and view.families[b].endswith(_ENTROPY) for b, slot in reads):
            seeds.add(node)
        if kind in PRODUCTS and (
            _turned(view, node, of_value, depends) or _outer(view, node, of_value, depends)
        ):
            seeds.add(node)
    return view.downstream(seeds)


def _turned(
    view: StepView, node: int, of_value: Mapping[int, int], depends: Sequence[frozenset[int]]
) -> bool:
    """Whether it multiplies what depends on a weight with that weight turned over, as a product's
    gradient does."""
    reads = [before for before, _ in view.reads(node)[:2]]
    for one, other in (reads, reads[::-1]) if len(reads) == 2 else ():
        variable = of_value.get(one)
        if variable is None or variable not in depends[other]:
            continue
        for value in {n for n, v in of_value.items() if v == variable}:
            for reader in view.readers[value]:
                mine, its = view.keys[node], view.keys[reader]
                if (
                    reader != node
                    and view.families[reader] == view.families[node]
                    and mine is not None
                    and its is not None
                    and _turn(mine.attributes) != _turn(its.attributes)
                    and reader in view.upstream([node])
                ):
                    return True
    return False


def _outer(
    view: StepView, node: int, of_value: Mapping[int, int], depends: Sequence[frozenset[int]]
) -> bool:
    """Whether it multiplies what another product reads beside a weight with what depends on that
    weight, and gives out as much as that has: the weight's gradient."""
    reads = [before for before, _ in view.reads(node)[:2]]
    if len(reads) < 2 or any(before in of_value for before in reads):
        return False
    given = view.nodes[node].output_bytes
    for one, other in (reads, reads[::-1]):
        for reader in view.readers[one]:
            if reader != node and view.families[reader] == view.families[node]:
                beside = [before for before, _ in view.reads(reader)[:2] if before in of_value]
                if any(
                    of_value[before] in depends[other] and view.nodes[before].output_bytes == given
                    for before in beside
                ):
                    return True
    return False


def _turn(attributes: Mapping[str, str]) -> tuple[str | None, ...]:
    names = ("transpose_a", "transpose_b", "adj_x", "adj_y", "equation")
    return tuple(attributes.get(name) for name in names)
