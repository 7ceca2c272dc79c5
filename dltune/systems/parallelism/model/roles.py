"""The roles of the ops of a training step: the model, its gradients, or the update of variables.

Roles follow from structure. A *weight* is a variable that an op of the model reads and whose update
depends on a gradient. Computing behind the gradients with other variables is the optimiser's.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dltune.analysis.keys import Key, family, parse
from dltune.base.errors import UsageError
from dltune.schemas.profile import Node, Op, Step
from dltune.simulate import step_graph
from dltune.simulate.step_graph import topological

Tensor = tuple[int, int]  # a node, and which of its outputs
Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StepView:
    """The readers and inputs in a profiled step of training: keys, shapes and each node's
    dependencies. `order`: the nodes, each after those that it reads and waits for."""

    step: Step
    ops: Sequence[Op]
    order: Sequence[int]

    @classmethod
    def of(cls, step: Step, ops: Sequence[Op]) -> StepView:
        """Return the view. Raises UsageError for a step with a loop in it, whose rounds are not
        separate ops."""
        for node in step.nodes:
            if node.type in step_graph.BACK:
                raise UsageError(
                    f"step {step.name or step.signature} contains the loop {node.name!r}, "
                    "whose iterations cannot be divided over devices",
                    remedy="profile the job without the loop: in Keras, use unroll=True in "
                    "recurrent layers and steps_per_execution=1",
                )
        return cls(step, ops, topological(step_graph.acyclic(step)))

    @property
    def title(self) -> str:
        return self.step.name or self.step.signature

    @property
    def nodes(self) -> Sequence[Node]:
        return self.step.nodes

    @functools.cached_property
    def keys(self) -> Sequence[Key | None]:
        """Per node; None for those that never ran, or whose inputs' shapes are not known."""
        by_op = [parse(op) for op in self.ops]
        return [None if node.op is None else by_op[node.op] for node in self.nodes]

    @functools.cached_property
    def families(self) -> Sequence[str]:
        return [family(node.type) for node in self.nodes]

    def reads(self, node: int) -> list[Tensor]:
        found = self.nodes[node]
        return list(zip(found.inputs, found.slots or (0,) * len(found.inputs), strict=True))

    @functools.cached_property
    def shapes(self) -> dict[Tensor, Shape]:
        """Return shapes, from the keys of the nodes that read them."""
        found: dict[Tensor, Shape] = {}
        for node, key in enumerate(self.keys):
            reads = self.reads(node)
            if key is not None and len(key.inputs) == len(reads):
                found |= {t: one.shape for t, one in zip(reads, key.inputs, strict=True)}
        return found

    @functools.cached_property
    def needs(self) -> Sequence[Sequence[int]]:
        """Per node those whose results it needs, each once: by its inputs, or because it takes a
        variable that they have changed."""
        found = []
        for node in self.nodes:
            taken = self.handles.keys() & set(node.inputs)
            changed = [c for c in node.control if taken & set(self.nodes[c].inputs)]
            found.append([*dict.fromkeys((*node.inputs, *changed))])
        return found

    @functools.cached_property
    def readers(self) -> Sequence[Sequence[int]]:
        found: list[list[int]] = [[] for _ in self.nodes]
        for node, needed in enumerate(self.needs):
            for before in needed:
                found[before].append(node)
        return found

    def downstream(
        self, start: Iterable[int], through: Callable[[int], bool] = lambda _: True
    ) -> set[int]:
        """`start`, and all that is computed from it, as far as `through` lets it pass."""
        found = set(start)
        waiting = list(found)
        while waiting:
            for after in self.readers[waiting.pop()]:
                if after not in found and through(after):
                    found.add(after)
                    waiting.append(after)
        return found

    def upstream(self, start: Iterable[int]) -> set[int]:
        """`start`, and all that it is computed from."""
        found = set(start)
        waiting = list(found)
        while waiting:
            for before in self.needs[waiting.pop()]:
                if before not in found:
                    found.add(before)
                    waiting.append(before)
        return found

    @functools.cached_property
    def handles(self) -> dict[int, list[int]]:
        """Return, of each variable, known by the node that names it, the nodes that take it
        itself."""
        found: dict[int, list[int]] = defaultdict(list)
        for node in range(len(self.nodes)):
            for before, slot in self.reads(node):
                outputs = self.nodes[before].outputs
                dtype = outputs[slot].dtype if slot < len(outputs) else ""
                if not self.nodes[before].inputs and (
                    dtype == "resource" or self.families[before] in ("Variable", "VarHandleOp")
                ):
                    found[before].append(node)
        return dict(found)


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
    a tied autoencoder, seems to be that weight's gradient, and is taken for it.

    Some ops exist for nothing else (`ReluGrad`, `Conv2DBackpropFilter`), and the second output of a
    cross entropy is a gradient. A product can also multiply as only the gradients of another
    product do: to the input of that product, with its weight turned over; to its weight, with its
    other input. All that depends on one of them is a gradient too, or is made of gradients: a
    model's own ops come before.
    """
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
