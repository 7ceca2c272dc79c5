"""The operators of a recorded step of PyTorch's, and their times.

Operators are layers that learn, and pools.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from dltune.analysis.aten_flops import kind_of
from dltune.base.errors import UsageError
from dltune.schemas.graph import aten_name
from dltune.schemas.profile import Op, Profile
from dltune.schemas.pytorch_step import Calls, Layer
from dltune.systems.parallelism.model.profile_operators import Measured, Seconds
from dltune.systems.parallelism.schemas.operators import (
    MOST_DIMENSIONS,
    SCHEMA,
    Dimension,
    Input,
    Kind,
    Operator,
    Operators,
    Region,
    Weights,
)

_NAMES = ("sample", "height", "width", "channel")
_IMAGES = ("Conv", "BatchNorm", "InstanceNorm", "GroupNorm", "MaxPool", "AvgPool", "Adaptive")
_POOLS = ("MaxPool", "AvgPool", "AdaptiveMaxPool", "AdaptiveAvgPool")
# layers in which a dimension divides the weights, and those that read their own channel alone
_LEARN_APART = ("Linear", "Conv1d", "Conv2d", "Conv3d", "Embedding", "BatchNorm")
_BAG = "EmbeddingBag"  # gives out sums of words
_OWN_CHANNEL = ("BatchNorm", *_POOLS)
# layers whose positions, other than samples and channels, do not touch each other
_POINTWISE = ("Linear", "Embedding", "LayerNorm", "BatchNorm")
_FLOPS_OF_A_NORM = 8


def called(calls: Calls, name: str) -> Operators:
    """Return the operators of a profile's recorded step. Raises UsageError where it has no layers
    that learn, or a layer that gives out more dimensions than operators have.

    The ops between layers, such as activations and attention, pass on their inputs: samples alike,
    and all else alike where a layer reads the shape that another has given out, else whole.
    """
    layers = layers_of(calls)
    if not any(one.weights for one in layers):
        raise UsageError(
            "the profile contains no layers with weights",
            remedy="profile a job whose model consists of modules of torch.nn and is not compiled",
        )
    for one in layers:
        if not 1 < len(one.output) <= MOST_DIMENSIONS:
            raise UsageError(
                f"the output of the layer {one.path!r} has {len(one.output)} dimensions; supported "
                f"are 2 to {MOST_DIMENSIONS}, the first of which is the batch dimension",
                remedy=None,
            )
    sources = _sources(calls, layers)
    groups, weights = _groups(layers)
    paths: dict[int | None, set[str]] = {}
    for one, group in zip(layers, groups, strict=True):
        paths.setdefault(group, set()).add(one.path)
    alone = {number for number, group in enumerate(groups) if len(paths[group]) == 1}
    dimensions = [_dimensions(one, place in alone) for place, one in enumerate(layers)]
    operators: list[Operator] = []
    for place, one in enumerate(layers):
        flops = _flops(one)
        learns = bool(one.weights) and bool(sources[place])
        operators.append(
            Operator(
                name=_title(one.path, operators),
                type=_type(one),
                dimensions=dimensions[place],
                flops=flops,
                backward_flops=2 * flops if learns else flops,
                inputs=tuple(
                    Input(source, _regions(one, layers[source], dimensions[place]))
                    for source in sources[place]
                ),
                weights=groups[place],
                element=one.element,
            )
        )
    return Operators(SCHEMA, name, tuple(operators), tuple(weights))


def layers_of(calls: Calls) -> list[Layer]:
    """Those of which operators are made, one each, in their order."""
    return [
        one
        for one in calls.layers
        if (one.weights or one.kind.startswith(_POOLS)) and all(one.output)
    ]


def _sources(calls: Calls, layers: Sequence[Layer]) -> list[list[int]]:
    """Return, for each layer, the numbers of the layers whose outputs it reads, directly or through
    other ops."""
    origin: dict[int, frozenset[int]] = {}  # of a storage
    found: list[list[int]] = []
    at = 0
    for number, one in enumerate(layers):
        for call in calls.calls[at : one.first]:
            read = frozenset().union(*(origin.get(storage, ()) for storage in call.reads))
            for storage in call.gives:
                origin[storage] = read
            for storage in call.writes:
                origin[storage] = origin.get(storage, frozenset()) | read
        read = frozenset().union(*(origin.get(storage, ()) for storage in one.reads))
        found.append(sorted(read))
        at = max(at, one.last)
        for storage in one.gives:
            origin[storage] = frozenset({number})
    return found


def _groups(layers: Sequence[Layer]) -> tuple[list[int | None], list[Weights]]:
    """Return, by layer, the number of its group of weights; layers that share a weight are in one
    group."""
    first: dict[int, int] = {}  # by weight, the group
    groups: list[int | None] = []
    paths: list[str] = []
    bytes: list[dict[int, int]] = []
    for one in layers:
        numbers = [number for number, _ in one.weights]
        if not numbers:
            groups.append(None)
            continue
        known = [first[number] for number in numbers if number in first]
        group = known[0] if known else len(paths)
        if not known:
            paths.append(one.path)
            bytes.append({})
        for number, size in one.weights:
            first.setdefault(number, group)
            if first[number] == group:
                bytes[group][number] = size
        groups.append(group)
    every = zip(paths, bytes, strict=True)
    return groups, [Weights(path, max(1, sum(sizes.values()))) for path, sizes in every]


def _shape(layer: Layer, shape: Sequence[int]) -> tuple[int, ...]:
    """With channels last."""
    image = len(shape) > 2 and layer.kind.startswith(_IMAGES)
    return (shape[0], *shape[2:], shape[1]) if image else tuple(shape)


def _dimensions(layer: Layer, alone: bool) -> tuple[Dimension, ...]:
    """Return the dimensions of the output; `alone`: True if no other layer has its weights."""
    shape = _shape(layer, layer.output)
    names = {2: ("sample", "channel"), 3: ("sample", "length", "channel")}
    pointwise = layer.kind.startswith(_POINTWISE) and not layer.kind.startswith(_IMAGES)
    last = len(shape) - 1

    def kind(place: int) -> Kind:
        if place == layer.samples:
            return "sample"
        if place < last:
            return "attribute" if pointwise else "whole"
        if layer.kind.startswith(_POOLS):
            return "attribute"
        learns = layer.kind.startswith(_LEARN_APART) and layer.kind != _BAG
        apart = learns and layer.groups == 1 and alone
        return "parameter" if apart else "whole"

    known = list(names.get(len(shape), _NAMES))
    if layer.samples:
        known[0], known[layer.samples] = known[layer.samples], known[0]
    return tuple(
        Dimension(name, size, kind(place))
        for place, (size, name) in enumerate(zip(shape, known, strict=True))
    )


def _regions(layer: Layer, source: Layer, own: Sequence[Dimension]) -> tuple[Region, ...]:
    """Return the parts of the output of `source` that `layer` reads for a part of its output."""
    gives = _shape(source, source.output)
    reads = _shape(layer, layer.inputs[0])
    last = len(gives) - 1

    def alike(place: int) -> bool:
        if place == source.samples == layer.samples:
            return gives[place] == own[place].size
        if gives != reads or len(own) != len(gives) or own[place].size != gives[place]:
            return False
        if place == last:
            return layer.kind.startswith(_OWN_CHANNEL)
        return layer.kind.startswith(_POINTWISE)

    return tuple(
        Region(1, place) if alike(place) else Region(size) for place, size in enumerate(gives)
    )


def _type(layer: Layer) -> str:
    """By the words that operators' documents have."""
    bias = " bias" * (len(layer.weights) > 1)
    window = "{}x{}/{}".format(*layer.window) if layer.window else "1x1/1"
    if layer.kind == "Linear":
        return f"dense{bias}"
    if layer.kind.startswith("Conv"):
        if layer.groups == 1:
            return f"conv {window}{bias}"
        read = layer.inputs[0] if layer.inputs else ()
        depthwise = read[1:2] == layer.output[1:2] == (layer.groups,)
        return f"{'depthwise' if depthwise else layer.kind} {window}{bias}"
    for kind, words in (("MaxPool", "max_pool"), ("AvgPool", "avg_pool")):
        if layer.kind.startswith(kind):
            return f"{words} {window}"
    for kind, word in (
        ("Embedding", "embedding"),
        ("BatchNorm", "batch_norm"),
        ("LayerNorm", "layer_norm"),
    ):
        if layer.kind.startswith(kind):
            return word
    return layer.kind or "module"


def _flops(layer: Layer) -> float:
    """Return the operations of the forward pass; of unknown modules, a product of each row with all
    their weights."""
    numbers = math.prod(layer.output)
    if layer.kind == "Embedding":
        return 0.0
    if layer.kind.startswith("Conv"):
        weight = max(size for _, size in layer.weights) / layer.element
        return 2.0 * numbers * weight / layer.output[1]
    if layer.kind.startswith(("BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm")):
        return float(_FLOPS_OF_A_NORM * numbers)
    if not layer.weights:
        return float(numbers * math.prod(layer.window[:2] or (1,)))
    learned = sum(size for _, size in layer.weights) / layer.element
    return 2.0 * math.prod(layer.output[:-1]) * learned


def _title(path: str, before: Sequence[Operator]) -> str:
    """Unlike those of operators before."""
    names = {one.name for one in before}
    every = itertools.chain([path], (f"{path} {count}" for count in itertools.count(2)))
    return next(name for name in every if name not in names)


def measured(calls: Calls, operators: Operators, profile: Profile) -> Measured:
    """Return the times. `operators`: of these calls, as `called` has them. Calls were timed under
    the job's threads; the profile's cases give the times of ops of their kind on one thread, and at
    their best.

    An operator's time is that of the calls that are its own. Between two layers, such as in an
    activation, time counts as the earlier layer's. Backward calls come to layers in the opposite
    order: each belongs to the nearest layer, from the previous call's layer on, that read one of
    the storages it reads; without such a layer, to the previous call's layer.
    """
    layers = layers_of(calls)
    slower = _Slower(profile.ops, profile.settings.intra)
    forward = [Seconds()] * len(layers)
    backward = [Seconds()] * len(layers)
    update = rest = Seconds()
    over = max((at for at, one in enumerate(calls.calls) if one.phase == "backward"), default=-1)
    of = _owners(calls, layers)
    for at, one in enumerate(calls.calls):
        took, layer = slower.seconds(one.name, one.seconds), of[at]
        if one.phase == "aside" and at > over:
            update += took
        elif layer is None:
            rest += took
        elif one.phase == "backward":
            backward[layer] += took
        else:
            forward[layer] += took
    return Measured(operators, tuple(forward), tuple(backward), update, rest, ())


def _owners(calls: Calls, layers: Sequence[Layer]) -> list[int | None]:
    """By call the layer, by number; None: it is none's."""
    uses: defaultdict[int, list[int]] = defaultdict(list)  # of a storage, the layers
    for number, layer in enumerate(layers):
        inner = calls.calls[layer.first : layer.last]
        for storage in {s for one in inner for s in one.reads}:
            uses[storage].append(number)
    begin = {layer.first: number for number, layer in enumerate(layers)}
    found: list[int | None] = []
    forward: int | None = None
    backward = len(layers) - 1
    for at, one in enumerate(calls.calls):
        forward = begin.get(at, forward)
        if one.phase == "backward":
            near = (n for storage in one.reads for n in uses[storage] if n <= backward)
            backward = max(near, default=backward)
            found.append(backward)
        else:
            found.append(forward if one.phase == "forward" else None)
    return found


class _Slower:
    """Times of ops of a kind on one thread, and at their best, over those on the threads that the
    job has; of a kind without cases, those of all ops together."""

    def __init__(self, ops: Iterable[Op], threads: int) -> None:
        own: defaultdict[str, float] = defaultdict(float)
        alone: defaultdict[str, float] = defaultdict(float)
        best: defaultdict[str, float] = defaultdict(float)
        for op in ops:
            if not op.times:
                continue
            least = min(one.min for one in op.times)
            for kind in (kind_of(aten_name(op.type)), _ALL):
                own[kind] += op.count * _at(op, threads, least)
                alone[kind] += op.count * _at(op, 1, least)
                best[kind] += op.count * least
        self._ratios = {kind: (alone[kind] / own[kind], best[kind] / own[kind]) for kind in own}

    def seconds(self, call: str, took: float) -> Seconds:
        kind = kind_of(aten_name(call.removeprefix("aten.").split(".")[0]))  # aten.add_.Tensor
        alone, best = self._ratios.get(kind) or self._ratios.get(_ALL) or (1.0, 1.0)
        return Seconds(took * alone, took * best)


_ALL = ""


def _at(op: Op, threads: int, otherwise: float) -> float:
    return min((one.min for one in op.times if one.threads == threads), default=otherwise)
