"""Networks as layers, the graph of a worker's step with them, and the time of its ops.

Layers have floating-point operations and parameters; `inference` and `training` build the step, and
`seconds` and `algorithms` estimate its times on a device. The published networks themselves are in
`architectures`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dltune.analysis.flops import BATCH_NORM
from dltune.simulate.step_graph import CSR, Kind, Numbers, StepGraph, Tensors

FLOAT = 4  # bytes of a number

LayerKind = Literal[
    "input",
    "conv",
    "depthwise",
    "dense",
    "bias",
    "batch_norm",
    "lrn",
    "relu",
    "max_pool",
    "avg_pool",
    "mean",
    "pad",
    "concat",
    "add",
    "fork",
    "dropout",
    "squeeze",
    "softmax",
]


@dataclass(frozen=True)
class Parameter:
    name: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return FLOAT * math.prod(self.shape)


@dataclass(frozen=True)
class Layer:
    """One operation. `inputs`: numbers of the layers that it reads. `shape`: of what it gives out
    for one sample, channels last. `window`: height and width that a pool looks at. A `fork` gives
    each of its readers a tensor of its own.

    The weights of a convolution are (height, width, channels in, channels out), of a depthwise one
    (height, width, channels in, channels out for each). `batch_norm` learns an offset, no scale.
    """

    name: str
    kind: LayerKind
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    parameters: tuple[Parameter, ...] = ()
    window: tuple[int, int] = (1, 1)

    @property
    def size(self) -> int:
        """Numbers that it gives out for one sample."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Network:
    """A network as layers: the inputs, output and parameters of each, and its floating-point
    operations.

    The operations are counted as in `analysis/flops.py`: a multiplication, an addition and a
    comparison are one operation each.

    `layers`: each after those that it reads. The first is the input, the last gives the
    predictions; others that nobody reads are additional heads.
    """

    layers: Sequence[Layer]

    @property
    def parameters(self) -> list[Parameter]:
        return [parameter for layer in self.layers for parameter in layer.parameters]

    @functools.cached_property
    def learns(self) -> list[bool]:
        """By layer, whether it or one before it learns: a gradient to what it gives out is of
        use."""
        found: list[bool] = []
        for layer in self.layers:
            found.append(bool(layer.parameters) or any(found[one] for one in layer.inputs))
        return found

    @functools.cached_property
    def needed(self) -> list[int]:
        """The last layer, and those that it reads, itself or through others: no heads besides."""
        needed = {len(self.layers) - 1}
        for number in reversed(range(len(self.layers))):
            if number in needed:
                needed.update(self.layers[number].inputs)
        return sorted(needed)

    def forward(self, layer: Layer, *, training: bool) -> int:
        """Operations for one sample."""
        match layer.kind:
            case "conv" | "depthwise" | "dense":
                return 2 * math.prod(layer.parameters[0].shape) * math.prod(layer.shape[:-1])
            case "max_pool" | "avg_pool":
                return math.prod(layer.window) * layer.size
            case "mean":
                return self.layers[layer.inputs[0]].size
            case "batch_norm":
                return BATCH_NORM["training" if training else "inference"] * layer.size
            case "lrn":  # squares of five channels added up, scaled and raised to a power
                return 13 * layer.size
            case "dropout":  # a number drawn, compared, the result scaled
                return 3 * layer.size if training else 0
            case "softmax":
                return 5 * layer.size
            case "bias" | "relu" | "add":
                return layer.size
            case _:
                return 0

    def backward(self, layer: Layer) -> int:
        """Operations for one sample, of the gradients to all that the layer reads and learns."""
        match layer.kind:
            case "conv" | "depthwise" | "dense":
                gradients = 1 + self.learns[layer.inputs[0]]
                return gradients * self.forward(layer, training=True)
            case "batch_norm":
                return BATCH_NORM["gradient"] * layer.size
            case "add":
                return 0
            case "dropout":
                return layer.size
            case _:
                return self.forward(layer, training=True)


# Steps

# which layers' gradients read what they gave out, and what they had read
_OUTPUT = frozenset({"relu", "lrn", "max_pool", "dropout", "softmax"})
_INPUT = frozenset({"conv", "depthwise", "dense", "batch_norm", "lrn", "max_pool"})
_WEIGHTS = frozenset({"conv", "depthwise", "dense"})


@dataclass(frozen=True, eq=False)
class NetworkStep:
    """Work of one worker with a network in a step, as a graph: parameters come, ops compute, and in
    training a gradient goes back for each parameter.

    The graph has only what the predictions need: an additional head is left out, like the
    operations that TensorFlow does not run when nothing asks for them.

    By node of the graph: `flops`, floating-point operations, and `moved`, the bytes of all that
    it reads and gives out. `received` and `sent`: the nodes that stand for a parameter's coming,
    and for its gradient's going.
    """

    graph: StepGraph
    flops: Numbers
    moved: Numbers
    received: Mapping[int, Parameter]
    sent: Mapping[int, Parameter]


def inference(network: Network, batch: int) -> NetworkStep:
    expansion = _Expansion(network, batch, training=False)
    expansion.forward()
    return expansion.step()


def training(network: Network, batch: int) -> NetworkStep:
    """The gradients of one layer leave together, as TensorFlow's do."""
    expansion = _Expansion(network, batch, training=True)
    expansion.forward()
    expansion.backward()
    return expansion.step()


@dataclass
class _Expansion:
    """Tensors are known by their numbers. `given`: by layer, its output."""

    network: Network
    batch: int
    training: bool
    names: list[str] = field(default_factory=list)
    flops: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    reads: list[Sequence[int]] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    alias: list[int] = field(default_factory=list)
    given: dict[int, int] = field(default_factory=dict)
    weights: dict[Parameter, int] = field(default_factory=dict)
    received: dict[int, Parameter] = field(default_factory=dict)
    sent: dict[int, Parameter] = field(default_factory=dict)

    def forward(self) -> None:
        for number in self.network.needed:
            layer = self.network.layers[number]
            for parameter in layer.parameters:
                self.received[len(self.names)] = parameter
                (self.weights[parameter],) = self._node(parameter.name, [], [parameter.bytes])
            reads = [self.given[one] for one in layer.inputs]
            reads += [self.weights[parameter] for parameter in layer.parameters]
            passes = layer.kind in ("squeeze", "fork") or (
                layer.kind == "dropout" and not self.training
            )
            (self.given[number],) = self._node(
                layer.name,
                reads,
                [self._size(layer)],
                self.batch * self.network.forward(layer, training=self.training),
                reads[0] if passes else None,
            )

    def backward(self) -> None:
        layers, learns = self.network.layers, self.network.learns
        gradients: dict[int, list[int]] = {number: [] for number in self.given}
        for number in reversed(self.given):
            layer = layers[number]
            if not learns[number]:
                continue
            own = self._sum(layer, gradients[number])
            if layer.kind in ("add", "squeeze", "fork"):  # as it came
                for one in layer.inputs:
                    gradients[one] += own
                continue
            reads = list(own)
            reads += [self.given[number]] * (layer.kind in _OUTPUT)
            reads += [self.given[one] for one in layer.inputs if layer.kind in _INPUT]
            reads += [self.weights[one] for one in layer.parameters if layer.kind in _WEIGHTS]
            inputs = [one for one in layer.inputs if learns[one]]
            found = self._node(
                f"gradients/{layer.name}",
                reads,
                [self._size(layers[one]) for one in inputs] + [p.bytes for p in layer.parameters],
                self.batch * self.network.backward(layer),
                own[0] if layer.kind == "bias" else None,
            )
            for one, gradient in zip(inputs, found, strict=False):
                gradients[one].append(gradient)
            for parameter, gradient in zip(layer.parameters, found[len(inputs) :], strict=True):
                self.sent[len(self.names)] = parameter
                self._node(f"gradients/{parameter.name}", [gradient], [])

    def step(self) -> NetworkStep:
        count = len(self.names)
        idle = [0, *self.received, *self.sent]  # the input, too
        op = np.arange(count, dtype=np.int32)
        op[idle] = -1
        moved = np.array(self.moved)
        moved[idle] = 0.0
        kind = [Kind.ARGUMENT if node == 0 else Kind.RESULT for node, _ in self.places]
        graph = StepGraph(
            self.names,
            op,
            (op >= 0).astype(np.float64),
            Tensors.of(self.places, self.bytes, self.alias, kind),
            CSR.of(self.reads),
            CSR.of(() for _ in range(count)),
            np.zeros(count, np.bool_),
        )
        return NetworkStep(graph, np.array(self.flops), moved, self.received, self.sent)

    def _size(self, layer: Layer) -> int:
        return FLOAT * self.batch * layer.size

    def _sum(self, layer: Layer, gradients: Sequence[int]) -> list[int]:
        """One gradient of what several layers read; none of the loss."""
        if len(gradients) < 2:
            return list(gradients)
        flops = (len(gradients) - 1) * self.batch * layer.size
        return self._node(f"gradients/{layer.name}/sum", gradients, [self._size(layer)], flops)

    def _node(
        self,
        name: str,
        reads: Sequence[int],
        sizes: Sequence[int],
        flops: float = 0.0,
        view: int | None = None,
    ) -> list[int]:
        """Its tensors, of so many bytes; `view`: whose memory the first of them is."""
        node, first = len(self.names), len(self.places)
        made = list(range(first, first + len(sizes)))
        self.names.append(name)
        self.reads.append(reads)
        self.flops.append(flops)
        self.places += [(node, slot) for slot in range(len(sizes))]
        self.bytes += sizes
        self.alias += made
        own = sum(sizes)
        if view is not None:
            self.alias[first] = self.alias[view]
            own -= sizes[0]
        # what only gives its input another shape reads none of it
        works = bool(flops) or own > 0
        self.moved.append((sum(self.bytes[one] for one in reads) + own) if works else 0.0)
        return made


# Time of a step's ops, by their operations and bytes


@dataclass(frozen=True)
class Device:
    """`flops` and `bandwidth`: its peaks, a second, the latter in bytes. `share`: the part of the
    roofline (Williams, Waterman and Patterson, 2009) that ops come to."""

    flops: float
    bandwidth: float
    share: float = 1.0


def seconds(step: NetworkStep, device: Device) -> Numbers:
    """Return seconds by node, one op at a time: as long as its operations or its bytes take,
    whichever is more."""
    return np.maximum(step.flops / device.flops, step.moved / device.bandwidth) / device.share


# Ways to compute a convolution

_COMPLEX = 2 * FLOAT
# cuDNN transforms no larger pictures in one piece
_LARGEST = 256


@dataclass(frozen=True)
class Algorithm:
    """A way to compute a convolution, and the memory that it needs while it runs: its workspace.

    The figures are counted from how the algorithms are published, not measured: all reach the same
    share of a device's peaks.

    One pass over a batch: forward, or the gradient to what is read, or to the weights, which
    take alike. `workspace` and `moved` in bytes; `moved`: what it reads and writes in all.
    """

    name: str
    workspace: int
    flops: float
    moved: float

    def seconds(self, device: Device) -> float:
        """By the roofline, at the device's share of it."""
        return max(self.flops / device.flops, self.moved / device.bandwidth) / device.share


def algorithms(network: Network, layer: Layer, batch: int) -> Iterator[Algorithm]:
    """Yield the algorithms of a layer of kind `conv` that its window and stride allow.

    *direct*: as a product of matrices that are never laid out (Chetlur et al., "cuDNN: efficient
    primitives for deep learning", 2014). *winograd*: F(2x2, 3x3) in one kernel, for which weights
    are transformed ahead (Lavin and Gray, "Fast algorithms for convolutional neural networks",
    2015). *fft*: pictures, weights and results as spectra, in the next power of two of pixels
    (Mathieu, Henaff and LeCun, "Fast training of convolutional networks through FFTs", 2013).
    """
    read = network.layers[layer.inputs[0]]
    high, wide, depth, channels = layer.parameters[0].shape
    direct = batch * network.forward(layer, training=True)
    bytes = FLOAT * (batch * (read.size + layer.size)) + layer.parameters[0].bytes
    yield Algorithm("direct", 0, direct, bytes)
    # without a stride there is a result for each place of the window, with padding for each pixel
    dense = all(
        given in (had, had - size + 1)
        for had, size, given in zip(read.shape[:2], (high, wide), layer.shape[:2], strict=True)
    )
    if not dense or max(high, wide) == 1:
        return
    if (high, wide) == (3, 3):
        tiles = batch * math.prod(-(-side // 2) for side in layer.shape[:2])
        adding = tiles * (32 * depth + 24 * channels) + 28 * depth * channels
        weights = 16 * FLOAT * depth * channels
        products = 2 * 16 * tiles * depth * channels
        yield Algorithm("winograd", weights, products + adding, bytes + 2 * weights)
    side = 1 << (max(read.shape[0] + high, read.shape[1] + wide) - 2).bit_length()
    if side <= _LARGEST:
        spectra = batch * depth + depth * channels + batch * channels
        bins = side * (side // 2 + 1)
        transforms = 2.5 * side**2 * math.log2(side**2) * spectra
        workspace = _COMPLEX * bins * spectra
        products = 8 * bins * batch * depth * channels
        yield Algorithm("fft", workspace, products + transforms, bytes + 2 * workspace)


def fastest(found: Iterator[Algorithm], free: int, device: Device) -> Algorithm:
    """Of those whose workspace has room in `free` bytes (SuperNeurons, section 3.5); `direct` needs
    none."""
    return min(
        (one for one in found if one.workspace <= max(0, free)),
        key=lambda one: one.seconds(device),
    )
