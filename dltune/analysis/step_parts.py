"""Parts of a profile's steps: shares of wall time, pauses of eager steps, batch norm in pieces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from dltune.analysis.keys import Key, parse
from dltune.schemas.graph import TensorType
from dltune.schemas.profile import (
    Node,
    Op,
    PartName,
    Profile,
    Step,
    is_awaited,
)

# Wall time of a round of the steps, and its parts as shares of that time

# of the op time; where less of it was measured, nothing follows for the whole
ENOUGH = 0.8


def part(profile: Profile, name: PartName) -> float:
    """A part of the wall time of a round of the steps, as a share; 0 where it is not known."""
    whole = sum(part.seconds for step in profile.steps for part in step.parts)
    seconds = sum(p.seconds for step in profile.steps for p in step.parts if p.name == name)
    return seconds / whole if whole > 0 else 0.0


def working(profile: Profile) -> float:
    """The share of the wall time in which ops ran; all of it where that is not known."""
    return part(profile, "ops") if any(step.parts for step in profile.steps) else 1.0


def wall(profile: Profile) -> float:
    """Seconds of a round of the steps. Steps that take turns have each the same wall time from one
    execution to the next."""
    whole = sum(part.seconds for step in profile.steps for part in step.parts)
    return whole or max((step.wall.median for step in profile.steps), default=0.0)


def unrecorded(profile: Profile) -> float:
    """Seconds of a round of the steps while its ops are not recorded; as recorded where the
    cost of recording was not measured."""
    overhead = profile.counters.overhead if profile.counters else None
    return wall(profile) / max(1.0, overhead.median if overhead else 1.0)


def may_be_recording(profile: Profile) -> float:
    """Seconds of a round of the steps that recording them can have taken, in ops too, where that
    was not measured; 0 where it was."""
    if profile.counters and profile.counters.overhead:
        return 0.0
    return wall(profile) * (1 - 1 / profile.framework.capabilities.recording)


def recording(profile: Profile) -> float:
    """Seconds of a round of the steps, between its ops, that it took to record them: at most the
    executor's part."""
    took = wall(profile) - unrecorded(profile)
    return min(took, part(profile, "executor") * wall(profile))


def measured(profile: Profile) -> float:
    """The share of the time in which ops ran that is of ops whose threads were tried, or that have
    the same ones always. Others have other shapes at each step. All of it where the job's own times
    are not known, or where dltune sets no thread count for some ops, whatever their shapes."""
    tried = [op for op in profile.ops if op.times or is_compiled(op)]
    ran = part(profile, "ops") * wall(profile)
    sets = profile.framework.capabilities.sets_every_op
    if not sets or ran <= 0 or any(op.own is None for op in tried):
        return 1.0
    return min(1.0, sum((op.own or 0.0) * op.count for op in tried) / ran)


def is_compiled(op: Op) -> bool:
    """True if torch.compile has made it, for a number of threads that it keeps."""
    return "cpp_fused_" in op.type


def unmeasured(profile: Profile) -> Iterator[str]:
    """Yield caveats to know before drawing conclusions from ops."""
    if profile.partial is None and (share := measured(profile)) < ENOUGH:
        yield (
            f"{1 - share:.0%} of the op time is in ops whose shapes change at each step; dltune "
            "could not measure their best thread count, so a plan gives all ops the same thread "
            "count"
        )


def taken(step: Step, index: int, ops: tuple[Op, ...]) -> float:
    """Seconds of a node in the sampled execution, else by the median of its op."""
    node = step.nodes[index]
    if node.start is not None and node.end is not None:
        return node.end - node.start
    return (ops[node.op].own or 0.0) * node.repeats if node.op is not None else 0.0


def portion(profile: Profile, which: Callable[[Key], bool]) -> tuple[float, str]:
    """The share of the op time, under the job's own settings, that is in ops of such keys, and the
    type of those that takes most of it (empty where there are none)."""
    total = 0.0
    types: dict[str, float] = defaultdict(float)
    for op in profile.ops:
        own = (op.own or 0.0) * op.count
        total += own
        if (key := parse(op)) and which(key):
            types[op.type] += own
    share = sum(types.values()) / total if total > 0 else 0.0
    return share, max(types, key=types.__getitem__, default="")


def op_seconds(profile: Profile) -> float:
    """All ops of a round of the steps, under the job's own settings."""
    return sum(
        taken(step, index, profile.ops)
        for step in profile.steps
        for index in range(len(step.nodes))
    )


# Pauses between the ops of an eager step, which Python calls one by one

# seconds; to call an op takes less, through several layers of modules too
LONG = 200e-6


class Pause(NamedTuple):
    """So many `seconds` before an op in which none runs. `first`: it is its step's first."""

    seconds: float
    before: Node
    first: bool = False


def pauses(profile: Profile) -> Iterator[Pause]:
    """Yield the pauses of a round of eager steps, of each one execution; a graph has none. A pause
    behind a sum of several ranks is a wait for the sum, not Python's."""
    if not profile.framework.capabilities.is_eager:
        return
    for step in profile.steps:
        ran = [
            (node, node.start, node.end)
            for node in step.nodes
            if node.start is not None and node.end is not None
        ]
        for (before, _, end), (node, start, _) in pairwise(ran):
            if not is_awaited(before.type, node.type):
                yield Pause(max(0.0, start - end), node)
        if ran:
            turn = sum(part.seconds for part in step.parts)
            yield Pause(max(0.0, turn - (ran[-1][2] - ran[0][1])), ran[0][0], first=True)


# Batch norm in pieces: layers that a graph computes by plain ops, though there is a fused kernel

_VIEWS = frozenset({"Cast", "ExpandDims", "Identity", "Reshape", "Squeeze", "StopGradient"})
# on one number a channel
_CHANNEL = _VIEWS | {"Add", "Maximum", "Mul", "Neg", "RealDiv", "Relu", "Rsqrt", "RsqrtGrad", "Sub"}
_SUMS = frozenset({"Add", "AddN"})
_REDUCTIONS = frozenset({"Mean", "Sum"})
_SQUARES = frozenset({"Square", "SquaredDifference"})
_SPREAD = frozenset({"BroadcastTo", "Tile"})

# Roles of a node in a layer. `input` and `gradient`: the layer's input in each of the two passes.
# `channel`: a number a channel. With the input's size: `spread`, the same in each channel;
# `product`; `sum`, with which a pass ends.
_Role = Literal["input", "gradient", "channel", "spread", "product", "sum"]
_WITHIN = frozenset({"channel", "spread", "product", "sum"})


@dataclass(frozen=True)
class Pieces:
    """A batch norm layer: the `nodes` that a fused kernel would replace, by index in the step.

    `bytes`: the size of its input. `gradient`: True if its gradient is among the nodes.
    """

    nodes: frozenset[int]
    bytes: int
    gradient: bool


def pieces(step: Step, ops: Sequence[Op]) -> list[Pieces]:
    """Return the batch norm layers that the step computes by plain ops, with the moments of its
    batch.

    Keras 3 writes a layer as a mean, a mean of squared differences, a reciprocal root, products and
    sums, and TensorFlow differentiates each of them. The layers are recognised by how the ops are
    connected and by their shapes, whatever the nodes are called: layers that normalise each example
    (layer norm, group norm) have the same ops, but their moments are along other axes.
    """
    graph = _Graph(step, ops)
    found = map(graph.layer, range(len(step.nodes)))
    return [layer for layer in found if layer]


class _Graph:
    def __init__(self, step: Step, ops: Sequence[Op]) -> None:
        self.nodes = step.nodes
        keys = [parse(op) for op in ops]
        self._keys = [None if node.op is None else keys[node.op] for node in step.nodes]
        self.readers: list[list[int]] = [[] for _ in step.nodes]
        for index, node in enumerate(step.nodes):
            for given in node.inputs:
                self.readers[given].append(index)

    def key(self, index: int, families: frozenset[str]) -> Key | None:
        """The node's key, if its op is of one of these families and its inputs are known."""
        key = self._keys[index]
        if key and _family(key) in families and len(key.inputs) == len(self.nodes[index].inputs):
            return key
        return None

    def given(self, index: int, key: Key) -> Iterator[tuple[int, TensorType]]:
        return zip(self.nodes[index].inputs, key.inputs, strict=True)

    def layer(self, root: int) -> Pieces | None:
        """The layer whose reciprocal root of a variance this node is; None: it is of none."""
        if not self.key(root, frozenset({"Rsqrt"})):
            return None
        channels = self.nodes[root].output_bytes
        for variance in self._before(root, channels):
            squares = self.nodes[variance].inputs[0]
            key = self.key(squares, _SQUARES)
            for source, tensor in self.given(squares, key) if key else ():
                means = [
                    reader
                    for reader in self.readers[source]
                    if self.key(reader, frozenset({"Mean"}))
                    and self.nodes[reader].output_bytes == channels
                ]
                if means and _fusible(tensor, channels):
                    return _Layer(self, source, tensor, channels).pieces(
                        root, variance, squares, *means
                    )
        return None

    def _before(self, root: int, channels: int) -> list[int]:
        """The means that the root comes from, through nodes of one number a channel."""
        found, seen = [], {root}
        left = [root]
        while left:
            for before in self.nodes[left.pop()].inputs:
                if before in seen or self.nodes[before].output_bytes != channels:
                    continue
                seen.add(before)
                if self.key(before, frozenset({"Mean"})):
                    found.append(before)
                elif self.key(before, _CHANNEL):
                    left.append(before)
        return found


def _fusible(tensor: TensorType, channels: int) -> bool:
    """True if the kernel takes it: there are one to three extents other than batch and channels."""
    return len(tensor.shape) in (3, 4, 5) and tensor.bytes > tensor.shape[0] * channels


class _Layer:
    """Grows from the moments of `source`, node by node, along those that read a known node."""

    def __init__(self, graph: _Graph, source: int, tensor: TensorType, channels: int) -> None:
        self._graph = graph
        self._tensor = tensor
        self._channels = channels
        self._roles: dict[int, _Role] = {source: "input"}
        self._left = [source]

    def pieces(self, root: int, variance: int, squares: int, *means: int) -> Pieces | None:
        for index in (root, variance, *means):
            self._is(index, "channel")
        self._is(squares, "product")
        while self._left:
            for reader in self._graph.readers[self._left.pop()]:
                if reader not in self._roles and (role := self._role(reader)):
                    self._is(reader, role)
        if not any(map(self._applies, self._roles)):
            return None
        within = {index for index, role in self._roles.items() if role in _WITHIN}
        return Pieces(
            frozenset(filter(self._matters, within)),
            self._tensor.bytes,
            "gradient" in self._roles.values(),
        )

    def _is(self, index: int, role: _Role) -> None:
        self._roles[index] = role
        self._left.append(index)

    def _role(self, index: int) -> _Role | None:
        """Role of a node that reads a known node; None: the layer ends before it."""
        families = _CHANNEL | _SUMS | _REDUCTIONS | _SPREAD | _SQUARES
        key = self._graph.key(index, families)
        if key is None:
            return None
        family, bytes_ = _family(key), self._graph.nodes[index].output_bytes
        roles = {node: self._roles.get(node) for node, _ in self._graph.given(index, key)}
        known = set(roles.values())
        if bytes_ == self._channels:
            if family in _REDUCTIONS:
                full = key.inputs[0].shape == self._tensor.shape
                first = roles[self._graph.nodes[index].inputs[0]]
                return "channel" if full and first in ("gradient", "product") else None
            return "channel" if family in _CHANNEL and "channel" in known else None
        if family in _SPREAD:  # its key lacks the count: its bytes can be another's
            return "spread" if "channel" in known else None
        if bytes_ != self._tensor.bytes:
            return None
        if family in _SUMS:
            return "sum" if known <= _WITHIN and known != {"channel"} else None
        if family == "Sub":
            return "product" if known == {"input", "channel"} else None
        if family not in ("Mul", "RealDiv"):
            return None
        unknown = [(n, tensor) for n, tensor in self._graph.given(index, key) if not roles[n]]
        if unknown and unknown[0][1].elements == 1:  # a constant
            return "spread" if "spread" in known else None
        if not unknown:
            fits = known == {"input", "gradient"} or known & {"channel", "product"}
            return "product" if fits and "sum" not in known else None
        if known == {None, "channel"} and unknown[0][1].shape == self._tensor.shape:
            self._is(unknown[0][0], "gradient")
            return "product"
        return None

    def _applies(self, index: int) -> bool:
        """True if the input is multiplied here by one number for each channel, not each example."""
        key = self._graph.key(index, frozenset({"Mul", "Sub"}))
        if key is None or self._roles[index] != "product":
            return False
        shape = self._tensor.shape
        for node, tensor in self._graph.given(index, key):
            if self._roles.get(node) == "channel":
                filled = (1,) * (len(shape) - len(tensor.shape)) + tensor.shape
                along = [axis for axis, length in enumerate(filled) if length > 1]
                return len(along) == 1 and along[0] > 0 and filled[along[0]] == shape[along[0]]
        return False

    def _matters(self, index: int) -> bool:
        """Not what only the moving averages and the optimiser read."""
        if self._roles[index] != "channel" or self._graph.key(index, _REDUCTIONS):
            return True
        return any(
            self._roles.get(reader) in _WITHIN and self._matters(reader)
            for reader in self._graph.readers[index]
        )


def _family(key: Key) -> str:
    return "Add" if key.family == "AddV2" else key.family
