"""What one worker does with a network in a step, as a graph: parameters come, ops compute, and in
training a gradient goes back for each parameter.

Only what the predictions need is there: a head besides is left out, like the operations that
TensorFlow does not run when nothing asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dltune.simulate.graph.csr import CSR, Numbers
from dltune.simulate.graph.step_graph import Kind, StepGraph, Tensors
from dltune.simulate.networks.layer import (
    FLOAT,
    Layer,
    Network,
    Parameter,
)

# which layers' gradients read what they gave out, and what they had read
_OUTPUT = frozenset({"relu", "lrn", "max_pool", "dropout", "softmax"})
_INPUT = frozenset({"conv", "depthwise", "dense", "batch_norm", "lrn", "max_pool"})
_WEIGHTS = frozenset({"conv", "depthwise", "dense"})


@dataclass(frozen=True, eq=False)
class NetworkStep:
    """By node of the graph: `flops`, floating-point operations, and `moved`, the bytes of all that
    it reads and gives out. `received` and `sent`: the nodes that stand for a parameter's coming,
    and for its gradient's going."""

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
