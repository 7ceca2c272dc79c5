"""A step of training layer by layer, as SuperNeurons runs it: forwards along a route and backwards
along the same one, with the tensors that cuDNN's layers read and write.

Gradients of rectifiers, normalisation across channels and softmax overwrite what they read, so
that of a sum for its first branch; all others have separate memory. Parameters and workspaces
are not counted. With these rules come out the figures of the paper's section 4.1.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dltune.simulate.networks import FLOAT, Layer, Network
from dltune.simulate.step_graph import CSR, StepGraph, Tensors

# kinds whose gradient reads the layer's input, and its output
_INPUT = frozenset({"conv", "dense", "batch_norm", "relu", "lrn", "max_pool", "avg_pool"})
_OUTPUT = frozenset({"relu", "lrn", "max_pool", "avg_pool", "dropout", "softmax"})
_IN_PLACE = frozenset({"relu", "lrn", "softmax"})


@dataclass(frozen=True, eq=False)
class LayerStep:
    """`route`: the layers in the order in which they run. Node k of the graph is the k-th one's
    forward part, and node `2 * len(route) - 1 - k` its backward part. `given`: by layer the tensors
    that it gives out, one for each reader of a fork. `input`: bytes of the batch, which is no
    tensor of the graph.
    """

    network: Network
    route: Sequence[int]
    graph: StepGraph
    given: Mapping[int, Sequence[int]]
    input: int

    def backward(self, node: int) -> int:
        """The backward part of a layer whose forward part this is, and the other way round."""
        return 2 * len(self.route) - 1 - node

    @property
    def batch(self) -> int:
        return self.input // (FLOAT * self.network.layers[0].size)

    @property
    def baseline(self) -> int:
        """Return the bytes where each tensor has separate memory for the whole step."""
        tensors = self.graph.tensors
        own = tensors.alias == np.arange(len(tensors))
        return self.input + int(tensors.bytes[own].sum())


def route(network: Network) -> list[int]:
    """The layers behind the input: depth first, but each after all that it reads (SuperNeurons,
    Algorithm 1)."""
    readers = _readers(network)
    waits = [len(set(layer.inputs)) for layer in network.layers]
    found: list[int] = []
    stack = readers[0][::-1]
    while stack:
        number = stack.pop()
        waits[number] -= 1
        if not waits[number]:
            found.append(number)
            stack += readers[number][::-1]
    return found


def layer_step(network: Network, batch: int) -> LayerStep:
    """Raises ValueError when several layers read one that is no fork."""
    expansion = _Expansion(network, batch)
    expansion.forward()
    expansion.backward()
    return expansion.step()


class _Expansion:
    """Tensors are known by their numbers, and by the layers that give them out and read them."""

    def __init__(self, network: Network, batch: int) -> None:
        self.network, self.batch = network, batch
        self.route = route(network)
        self.readers = _readers(network)
        self.names: list[str] = []
        self.reads: list[list[int]] = []
        self.places: list[tuple[int, int]] = []
        self.bytes: list[int] = []
        self.alias: list[int] = []
        self.given: dict[int, list[int]] = {}
        self.between: dict[tuple[int, int], int] = {}
        for layer, readers in zip(network.layers, self.readers, strict=True):
            if len(readers) > 1 and layer.kind not in ("fork", "input"):
                raise ValueError(f"{len(readers)} layers read {layer.name}, which is no fork")

    def forward(self) -> None:
        for number in self.route:
            layer = self.network.layers[number]
            self._node(layer.name, self._inputs(number))
            readers = self.readers[number] or [-1]
            copies = readers if layer.kind == "fork" else readers[:1]
            self.given[number] = [self._tensor(slot, layer) for slot in range(len(copies))]
            self.between.update(
                ((number, reader), tensor)
                for reader, tensor in zip(copies, self.given[number], strict=True)
            )

    def backward(self) -> None:
        gradient: dict[tuple[int, int], int] = {}
        for number in reversed(self.route):
            layer = self.network.layers[number]
            own = [gradient[number, reader] for reader in self.readers[number]]
            reads = list(own)
            reads += self._inputs(number) if layer.kind in _INPUT else []
            reads += self.given[number] if layer.kind in _OUTPUT else []
            self._node(f"{layer.name} backward", reads)
            inputs = [one for one in layer.inputs if one]
            for slot, one in enumerate(inputs):
                first = slot == 0 and layer.kind in ("add", "fork")
                over = (own or self.given[number])[0]
                view = over if first or layer.kind in _IN_PLACE else None
                gradient[one, number] = self._tensor(slot, self.network.layers[one], view)

    def step(self) -> LayerStep:
        count = len(self.names)
        graph = StepGraph(
            self.names,
            np.arange(count, dtype=np.int32),
            np.ones(count),
            Tensors.of(self.places, self.bytes, self.alias),
            CSR.of(self.reads),
            CSR.of(() for _ in range(count)),
            np.zeros(count, np.bool_),
        )
        input = FLOAT * self.batch * self.network.layers[0].size
        return LayerStep(self.network, self.route, graph, self.given, input)

    def _inputs(self, number: int) -> list[int]:
        return [self.between[one, number] for one in self.network.layers[number].inputs if one]

    def _node(self, name: str, reads: Sequence[int]) -> None:
        self.names.append(name)
        self.reads.append(list(reads))

    def _tensor(self, slot: int, like: Layer, view: int | None = None) -> int:
        """Add a tensor of the last node; it is as large as a layer's output."""
        tensor = len(self.places)
        self.places.append((len(self.names) - 1, slot))
        self.bytes.append(FLOAT * self.batch * like.size)
        self.alias.append(tensor if view is None else self.alias[view])
        return tensor


def _readers(network: Network) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in network.layers]
    for number, layer in enumerate(network.layers):
        for one in dict.fromkeys(layer.inputs):
            found[one].append(number)
    return found
