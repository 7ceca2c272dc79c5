"""The operators of a profiled step of training, and the time that each takes.

The samples of a step are counted by the first size of what it is handed; which dimension of an
operator's output counts them, and what it reads for each part of its output, follows op by op
(`reading/layers.py`). Weights and gradients are known by structure (`reading/roles.py` and
`assigned`), names are for people (`Names`). Statistics over samples, as a batch norm's, are those
of each part.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dltune.analysis.flops import filters, operations
from dltune.base.errors import UsageError
from dltune.schemas.graph import SIZES
from dltune.schemas.profile import Op, Step
from dltune.systems.parallelism.model.layers import Layers
from dltune.systems.parallelism.model.roles import Roles, StepView, Tensor, is_product, roles
from dltune.systems.parallelism.schemas.operators import SCHEMA, Operator, Operators, Weights

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
    """By node of the backward pass the number of its operator. `own`: of `owners`.

    It is the operator whose gradients the op computes, decided by the op's inputs. A product with a
    weight is of an operator with that weight; a product with an input of an operator's product, of
    that operator; other ops, of the last operator that gave out their inputs from the forward pass.
    An op that reads nothing of the forward pass goes with the op that takes its result.
    """
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


_NUMBER = re.compile(r"_\d+$")
_FUNCTIONAL = re.compile(r"functional(_\d+)?")
_CALLS = ("StatefulPartitionedCall", "PartitionedCall")
_REWRITTEN = ("ArithmeticOptimizer", "ConstantFolding")


class Names:
    """Names of a weight and an op for people: the path of its layer.

    Keras 3 enters each layer's name scope twice, so that TensorFlow puts a number behind it:
    `dense_1` in a variable's path is `dense_1_2` in the graph, and `dense` is `dense_1`. Where all
    weights are read in such scopes the numbers go again. A path has the names of the layers around,
    but not that of a functional model, whose layers are built before it. Its default name is left
    out here; a name that somebody gave it cannot be distinguished from that of a layer, and stays
    in front.
    """

    def __init__(self, view: StepView, roles: Roles) -> None:
        self.view = view
        names = [_parts(node.name) for node in view.nodes]
        self._scopes = {
            parts[:n]
            for node, parts in enumerate(names)
            if view.families[node] != "ReadVariableOp" and parts[:1] != ("gradient_tape",)
            for n in range(1, len(parts))
        }
        scopes = {variable: self._scope(variable, roles) for variable in roles.weights}
        unnamed = [part for variable, part in scopes.items() if not self._named(variable)]
        self._keras = all(part and _NUMBER.search(part[0]) for part in unnamed)
        self._paths = {
            variable: "/".join(part if self._named(variable) else self._clean(self._layers(part)))
            for variable, part in scopes.items()
        }

    def layer(self, variable: int) -> str:
        """Return the layer of a weight, as its variable's path has it before its last part."""
        return self._paths[variable]

    def op(self, node: int) -> tuple[str, str]:
        """Return the layer in which it is computed, and its name there."""
        parts = _parts(self.view.nodes[node].name)
        return "/".join(self._clean(parts[:-1])), parts[-1]

    def _named(self, variable: int) -> bool:
        return self.view.nodes[variable].type.startswith(("VarHandle", "Variable"))

    def _scope(self, variable: int, roles: Roles) -> tuple[str, ...]:
        if self._named(variable):
            parts = _parts(self.view.nodes[variable].name)
            return parts[:-1] or parts
        reads = [n for n in roles.weights[variable] if self.view.families[n] == "ReadVariableOp"]
        reads = reads or [n for n in self.view.handles[variable] if n in roles.model]
        reads.sort(key=lambda node: (not self._forward(node, roles), node))
        scope = _parts(self.view.nodes[reads[0]].name)[:-1]
        # the op for which it is read has a scope that contains nothing else
        while len(scope) > 1 and scope not in self._scopes:
            scope = scope[:-1]
        return scope

    def _forward(self, read: int, roles: Roles) -> bool:
        """True if the model's ops take the value read there, and not the optimiser's alone."""
        behind = self.view.downstream([read], lambda node: node not in roles.informed)
        taken = {after for node in behind for after in self.view.readers[node]}
        return bool(taken & roles.informed & roles.model)

    def _layers(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the parts without the names that an op gives its inner ops."""
        numbered = itertools.takewhile(_NUMBER.search, parts)
        return tuple(numbered) if self._keras else parts

    def _clean(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        if self._keras:
            parts = tuple(_NUMBER.sub("", part) for part in parts)
            if parts and _FUNCTIONAL.fullmatch(parts[0]):
                parts = parts[1:]
        return parts


def _parts(name: str) -> tuple[str, ...]:
    parts = [part for part in name.split("/") if part not in _CALLS]
    for rewritten in _REWRITTEN:
        if rewritten in parts:
            at = parts.index(rewritten)
            parts = parts[at + 1 :] if at == 0 else [*parts[:at], parts[-1]]
    return tuple(parts) or (name,)


@dataclass(frozen=True)
class Seconds:
    """That ops take one after the other: each on one thread, and each at its best."""

    alone: float = 0.0
    best: float = 0.0

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(self.alone + other.alone, self.best + other.best)


@dataclass(frozen=True, eq=False)
class Measured:
    """`forward` and `backward`: of each operator. `update`: of the weights' updates. `rest`: of ops
    that are neither. `uncounted`: types of ops of operators whose operations are not known; they
    are counted as none."""

    operators: Operators
    forward: tuple[Seconds, ...]
    backward: tuple[Seconds, ...]
    update: Seconds
    rest: Seconds
    uncounted: tuple[str, ...]


def measured(step: Step, ops: Sequence[Op]) -> Measured:
    """Return the operators of a profile's step and its ops, with times. Raises UsageError for a
    step that has loops, trains nothing, or whose samples or weights are not known."""
    view = StepView.of(step, ops)
    layers = Layers(view, roles(view))
    own = owners(layers)
    gradients = assigned(layers, own)
    names = Names(view, layers.roles)
    known = filters(ops)
    flops = [operations(op, known) for op in ops]
    seconds = [_seconds(op) for op in ops]
    uncounted: set[str] = set()

    def work(nodes: Iterable[int]) -> tuple[float, Seconds]:
        total, time = 0.0, Seconds()
        for node in nodes:
            one = step.nodes[node]
            if one.op is not None and one.repeats:
                count = flops[one.op]
                if count is None:
                    uncounted.add(one.type)
                total += one.repeats * (count or 0)
                taken = seconds[one.op]
                time += Seconds(one.repeats * taken.alone, one.repeats * taken.best)
        return total, time

    behind: list[list[int]] = [[] for _ in layers.drafts]
    for node, number in gradients.items():
        behind[number].append(node)
    forward = [work(draft.nodes) for draft in layers.drafts]
    backward = [work(nodes) for nodes in behind]
    counted = frozenset(uncounted)
    others = set(range(len(step.nodes))) - layers.operator.keys() - gradients.keys()
    optimizer = others & layers.roles.optimizer
    groups, weights = _weights(layers, own, names)
    titles = _titles(layers, own, names)
    finished = layers.drafts.finished()
    shared = Counter(groups.values())
    operators = []
    for number, (draft, (dimensions, inputs)) in enumerate(
        zip(layers.drafts, finished, strict=True)
    ):
        group = groups.get(number)
        operators.append(
            Operator(
                name=titles[number],
                type=_type(layers, number),
                dimensions=dimensions,
                flops=forward[number][0],
                backward_flops=backward[number][0],
                inputs=inputs,
                weights=group,
                element=_element(view, draft.anchor),
                gradient=any(layers.roles.depends[node] for node in draft.nodes),
                block=weights[group].name if group is not None and shared[group] > 1 else "",
            )
        )
    return Measured(
        operators=Operators(SCHEMA, step.name or step.signature, tuple(operators), tuple(weights)),
        forward=tuple(time for _, time in forward),
        backward=tuple(time for _, time in backward),
        update=work(optimizer)[1],
        rest=work(others - optimizer)[1],
        uncounted=tuple(sorted(counted)),
    )


def _seconds(op: Op) -> Seconds:
    """0 for what waits for others, which dltune does not control."""
    if not op.times:
        return Seconds()
    best = min(time.min for time in op.times)
    alone = [time.min for time in op.times if time.threads == 1]
    return Seconds(min(alone, default=best), best)


def _element(view: StepView, node: int) -> int:
    outputs = view.nodes[node].outputs
    return SIZES.get(outputs[0].dtype, 4) if outputs else 4


def _weights(
    layers: Layers, own: Mapping[int, Sequence[int]], names: Names
) -> tuple[dict[int, int], list[Weights]]:
    """By operator the number of its group, and the groups: operators that share a weight have one
    group together."""
    first = {number: number for numbers in own.values() for number in numbers}

    def root(number: int) -> int:
        while first[number] != number:
            number = first[number]
        return number

    for numbers in own.values():
        for number in numbers[1:]:
            first[root(number)] = root(numbers[0])
    bytes: Counter[int] = Counter()
    paths: dict[int, dict[str, None]] = {}
    for variable, numbers in own.items():
        if numbers:
            bytes[root(numbers[0])] += _bytes(layers, variable)
            paths.setdefault(root(numbers[0]), {})[names.layer(variable)] = None
    place = {number: n for n, number in enumerate(sorted(bytes))}
    groups = {number: place[root(number)] for number in first}
    return groups, [Weights("+".join(paths[number]), bytes[number]) for number in sorted(bytes)]


def _bytes(layers: Layers, variable: int) -> int:
    view = layers.view
    for node in sorted(layers.roles.weights[variable]):
        outputs = view.nodes[node].outputs
        if view.families[node] in ("ReadVariableOp", "Variable") and outputs and outputs[0].bytes:
            return outputs[0].bytes
    for node in layers.roles.updates[variable]:
        key = view.keys[node]
        # a scatter takes some rows
        if key is not None and key.inputs and "Scatter" not in key.family:
            return max(one.bytes for one in key.inputs)
    raise UsageError(
        f"the profile does not contain the size of the weight {view.nodes[variable].name!r}",
        remedy="profile the job again",
    )


def _titles(layers: Layers, own: Mapping[int, Sequence[int]], names: Names) -> list[str]:
    """Return distinct titles: the layer of the weight that an operator learns first, or in which it
    begins."""
    learned = {number: variable for variable in reversed([*own]) for number in own[variable]}
    found: dict[str, None] = {}
    for number, draft in enumerate(layers.drafts):
        layer, op = names.op(draft.anchor)
        title = names.layer(learned[number]) if number in learned else layer or op
        if draft.data:
            title = layers.view.nodes[draft.anchor].name
        if title in found and not draft.data:
            title = f"{title}/{op}"
        count, plain = 1, title
        while title in found:
            count += 1
            title = f"{plain} {count}"
        found[title] = None
    return list(found)


def _type(layers: Layers, number: int) -> str:
    """Return the op that it begins with, the placement of its windows, and the kinds of ops that
    follow."""
    view, draft = layers.view, layers.drafts[number]
    key = view.keys[draft.anchor]
    words = [view.families[draft.anchor]]
    if key is not None:
        if "Conv" in words[0]:
            words.append("x".join(map(str, key.inputs[1].shape[:-2])))
        words += [
            f"{name}={key.attributes[name]}"
            for name in ("ksize", "strides", "padding", "equation", "fused_ops")
            if name in key.attributes
        ]
    more = {view.families[node] for node in draft.nodes[1:] if node in layers.roles.informed}
    return " ".join(words) + "".join(f" + {one}" for one in sorted(more))
