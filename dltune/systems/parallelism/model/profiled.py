"""The operators of a profiled step of training, and the time that each takes.

The samples of a step are counted by the first size of what it is handed; which dimension of an
operator's output counts them, and what it reads for each part of its output, follows op by op
(`reading/layers.py`). Weights and gradients are known by structure (`reading/roles.py`,
`reading/backward.py`), names are for people (`reading/layer_names.py`). Statistics over samples, as
a batch norm's, are those of each part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dltune.analysis.flops import filters, operations
from dltune.base.errors import UsageError
from dltune.schemas.graph import SIZES
from dltune.schemas.profile import Op, Step
from dltune.systems.parallelism.model.reading.backward import assigned, owners
from dltune.systems.parallelism.model.reading.layer_names import Names
from dltune.systems.parallelism.model.reading.layers import Layers
from dltune.systems.parallelism.model.reading.roles import roles
from dltune.systems.parallelism.model.reading.step_view import StepView
from dltune.systems.parallelism.schemas.operators import (
    SCHEMA,
    Operator,
    Operators,
    Weights,
)


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
