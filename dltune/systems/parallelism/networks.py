"""Networks of layers as operators that can be divided over devices, and FlexFlow's own networks.

Operations are counted as in `dltune/simulate/networks.py`; sizes are those of 32-bit numbers.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dltune.simulate import architectures
from dltune.simulate.networks import FLOAT, Layer, Network
from dltune.systems.parallelism.schemas.operators import (
    SCHEMA,
    Dimension,
    Input,
    Kind,
    Operator,
    Operators,
    Region,
    Weights,
)

_FOLDED = frozenset({"bias", "batch_norm", "relu", "dropout", "softmax"})
_HANDED_ON = frozenset({"squeeze", "fork", "pad"})
_MIXING = frozenset({"conv", "dense"})  # each channel reads all
_WINDOWED = frozenset({"conv", "max_pool", "avg_pool"})
_OWN = _MIXING | _WINDOWED | {"input", "mean", "add", "concat"}


@dataclass
class _Group:
    """`layers` make one operator, that at `place`; `number` is that of the first layer."""

    place: int
    number: int
    layers: list[Layer]

    @property
    def head(self) -> Layer:
        return self.layers[0]

    @property
    def positions(self) -> tuple[int, ...]:
        """Return height and width of its output, if there is more than one position."""
        space = self.head.shape[:-1]
        return space if max(space, default=1) > 1 else ()


@dataclass(frozen=True)
class _Read:
    """The output of a layer: the group it is in, and how many zeros are on each side of it."""

    group: _Group
    edge: int = 0


def operators(network: Network, name: str, batch: int) -> Operators:
    """Those that the predictions need. Raises ValueError for a layer that is no operator: one of a
    kind unknown here, or one that would belong to another's which others read without it.

    Functions of each number that a convolution or a sum gives out (bias, normalisation, rectifier,
    dropout) belong to it. So does the softmax at the end: where channels are divided, the parts
    exchange only two numbers a sample for it. Padding belongs to its reader.
    """
    groups, given = _groups(network)
    weights = [
        Weights(group.head.name, size)
        for group in groups
        if (size := sum(p.bytes for layer in group.layers for p in layer.parameters))
    ]
    learned = {one.name: n for n, one in enumerate(weights)}
    found = []
    for group in groups:
        inputs = _inputs(group, [given[number] for number in group.head.inputs])
        own = learned.get(group.head.name)
        found.append(
            Operator(
                group.head.name,
                _type(group, inputs),
                _dimensions(group, batch, learns=own is not None),
                float(batch * sum(network.forward(one, training=True) for one in group.layers)),
                float(batch * sum(network.backward(one) for one in group.layers)),
                inputs,
                own,
                gradient=network.learns[group.number],
            )
        )
    return Operators(SCHEMA, name, tuple(found), tuple(weights))


def window(read: int, given: int, size: int) -> tuple[int, int]:
    """Stride and first position of windows of `size` in one direction, by how many there are over
    `read` positions: the smallest stride with which either of TensorFlow's paddings gives so many.
    Raises ValueError where none does."""
    for stride in range(1, read + 1):
        if read >= size and (read - size) // stride + 1 == given:
            return stride, 0
        if -(-read // stride) == given:
            return stride, -(max(0, (given - 1) * stride + size - read) // 2)
    raise ValueError(f"no stride gives {given} windows of {size} over {read} positions")


def _groups(network: Network) -> tuple[list[_Group], dict[int, _Read]]:
    """In order, and by layer what those that read it do read."""
    layers = network.layers
    readers = collections.Counter(one for n in network.needed for one in layers[n].inputs)
    groups: list[_Group] = []
    given: dict[int, _Read] = {}
    for number in network.needed:
        layer = layers[number]
        if layer.kind in _OWN:
            groups.append(_Group(len(groups), number, [layer]))
            given[number] = _Read(groups[-1])
            continue
        (source,) = layer.inputs
        before = given[source]
        if layer.kind in _FOLDED and readers[source] == 1 and not before.edge:
            before.group.layers.append(layer)
            given[number] = before
        elif layer.kind in _HANDED_ON:
            wider = layer.shape[0] - layers[source].shape[0] if layer.kind == "pad" else 0
            given[number] = _Read(before.group, before.edge + wider // 2)
        else:
            raise ValueError(f"the layer {layer.name!r} ({layer.kind}) is no operator")
    return groups, given


def _inputs(group: _Group, reads: Sequence[_Read]) -> tuple[Input, ...]:
    depths = [read.group.head.shape[-1] for read in reads]
    before = [sum(depths[:n]) if group.head.kind == "concat" else 0 for n in range(len(reads))]
    channel = 1 + len(group.positions)
    found = []
    for read, depth, passed in zip(reads, depths, before, strict=True):
        mixes = group.head.kind in _MIXING
        channels = Region(depth) if mixes else Region(1, channel, start=-passed)
        regions = (Region(1, 0), *_space(group, read), channels)
        found.append(Input(read.group.place, regions))
    return tuple(found)


def _space(group: _Group, read: _Read) -> Iterator[Region]:
    """Yield the regions of the input's height and width, if it has them."""
    for axis, length in enumerate(read.group.positions):
        size = _extent(group.head, axis, length)
        windows = group.positions[axis] if group.positions else 1
        stride, start = window(length + 2 * read.edge, windows, size)
        yield Region(size, 1 + axis if group.positions else None, stride, start - read.edge)


def _extent(layer: Layer, axis: int, length: int) -> int:
    """Return the extent of its windows in one direction, in which it reads `length` positions."""
    match layer.kind:
        case "conv":
            return layer.parameters[0].shape[axis]
        case "max_pool" | "avg_pool":
            return layer.window[axis]
        case "mean" | "dense":
            return length
        case _:
            return 1


def _dimensions(group: _Group, batch: int, *, learns: bool) -> tuple[Dimension, ...]:
    kind: Kind = "parameter" if learns else "attribute"
    if group.head.kind == "input":
        kind = "whole"  # each reader needs all colours
    space = zip(("height", "width"), group.positions, strict=False)
    return (
        Dimension("sample", batch, "sample"),
        *(Dimension(name, size, "attribute") for name, size in space),
        Dimension("channel", group.head.shape[-1], kind),
    )


def _type(group: _Group, inputs: Sequence[Input]) -> str:
    """Return all that changes the work in addition to the shapes: "conv 3x3/2 bias relu"."""
    head = group.head
    words: list[str] = [head.kind if group.positions or head.kind != "conv" else "dense"]
    if group.positions and head.kind in _WINDOWED:
        _, down, across, _ = inputs[0].regions
        words.append(f"{down.extent}x{across.extent}/{down.stride}")
    return " ".join([*words, *(layer.kind for layer in group.layers[1:])])


# each sample reads its own, and so does each channel
_SAMPLE = Region(1, 0)
_CHANNEL = Region(1, 1)

# of an LSTM's step, for each channel in addition to the products: four biases, a function of each
# gate; two products and a sum for the new cell, a function and a product for its output
_CELL = 4 + 4 + 3 + 2
# derivatives: of the tanh's two (1 - y * y, a product), of three sigmoids, six products and a sum
# of the cell's and the gates', four of the biases
_CELL_GRADIENT = 2 * 3 + 3 * 3 + 7 + 4
_SOFTMAX = 5


@dataclass
class Unrolled:
    """A recurrent network as operators: each layer unrolled, one operator for each step. Each
    method adds a layer that reads the outputs of the layers whose operators it receives, and
    returns its operators."""

    batch: int
    operators: list[Operator] = field(default_factory=list)
    weights: list[Weights] = field(default_factory=list)

    def network(self, name: str) -> Operators:
        return Operators(SCHEMA, name, tuple(self.operators), tuple(self.weights))

    def tokens(self, name: str, steps: int) -> int:
        """The data: the number of a word for each step."""
        dimensions = (
            Dimension("sample", self.batch, "sample"),
            Dimension("step", steps, "whole"),
        )
        return self._add(Operator(name, "tokens", dimensions, 0.0, 0.0, gradient=False))

    def embedding(self, tokens: int, name: str, vocabulary: int, width: int) -> list[int]:
        """A row of a table for each word; backwards its gradient is added to the row's."""
        learned = self._learn(name, vocabulary * width)
        steps = self.operators[tokens].dimensions[1].size
        return [
            self._step(
                f"{name}/{step}",
                "embedding",
                width,
                (Input(tokens, (_SAMPLE, Region(1, start=step))),),
                (0, width),
                learned,
                name,
            )
            for step in range(steps)
        ]

    def lstm(
        self, reads: Sequence[int], name: str, hidden: int, before: int | None = None
    ) -> list[int]:
        """Add an LSTM. A channel reads all of its input and of the previous step's output, and its
        cell of that step, which travels with it. `before`: the layer whose state the first step
        goes on from; else from zeros."""
        width = self._width(reads[0])
        learned = self._learn(name, 4 * (width + hidden + 1) * hidden)
        product = 2 * 4 * (width + hidden) * hidden
        work = product + _CELL * hidden, 2 * product + _CELL_GRADIENT * hidden
        found: list[int] = []
        for step, read in enumerate(reads):
            inputs = [Input(read, (_SAMPLE, Region(width)))]
            if before is not None:
                inputs.append(Input(before, (_SAMPLE, Region(hidden))))
                inputs.append(Input(before, (_SAMPLE, _CHANNEL)))
            before = self._step(
                f"{name}/{step}", "lstm", hidden, tuple(inputs), work, learned, name
            )
            found.append(before)
        return found

    def together(self, reads: Sequence[int], name: str) -> int:
        """Add the outputs of all steps, side by side."""
        dimensions = (
            Dimension("sample", self.batch, "sample"),
            Dimension("step", len(reads), "whole"),
            Dimension("channel", self._width(reads[0]), "attribute"),
        )
        inputs = tuple(Input(read, (_SAMPLE, Region(1, 2))) for read in reads)
        return self._add(Operator(name, "concat", dimensions, 0.0, 0.0, inputs))

    def attention(self, reads: Sequence[int], memory: int, name: str) -> list[int]:
        """Add attention over the steps in `memory`, scored by a dot product; the weighted sum and
        the input are multiplied by weights and given out through a tanh (Luong, Pham and Manning,
        "Effective approaches to attention-based neural machine translation", 2015, section 3.1).
        Each part of the channels needs all scores and all of the sum; these operations, of NMT's 4
        %, are counted as if they were divided, too."""
        _, steps, channels = (one.size for one in self.operators[memory].dimensions)
        width = self._width(reads[0])
        learned = self._learn(name, (channels + width) * width)
        product = 2 * (channels + width) * width + 2 * 2 * steps * channels
        work = (
            product + _SOFTMAX * steps + width,
            2 * product + _SOFTMAX * steps + 3 * width,
        )
        return [
            self._step(
                f"{name}/{step}",
                "attention",
                width,
                (
                    Input(read, (_SAMPLE, Region(width))),
                    Input(memory, (_SAMPLE, Region(steps), Region(channels))),
                ),
                work,
                learned,
                name,
            )
            for step, read in enumerate(reads)
        ]

    def softmax(self, reads: Sequence[int], name: str, classes: int) -> list[int]:
        """A product with a bias, and its softmax: parts that have some of the channels exchange two
        numbers a sample for that, which is left out."""
        width = self._width(reads[0])
        learned = self._learn(name, (width + 1) * classes)
        product, others = 2 * width * classes, (1 + _SOFTMAX) * classes
        return [
            self._step(
                f"{name}/{step}",
                "dense bias softmax",
                classes,
                (Input(read, (_SAMPLE, Region(width))),),
                (product + others, 2 * product + others),
                learned,
                name,
            )
            for step, read in enumerate(reads)
        ]

    def _learn(self, name: str, numbers: int) -> int:
        self.weights.append(Weights(name, FLOAT * numbers))
        return len(self.weights) - 1

    def _width(self, operator: int) -> int:
        return self.operators[operator].dimensions[-1].size

    def _step(
        self,
        name: str,
        type: str,
        channels: int,
        inputs: tuple[Input, ...],
        work: tuple[int, int],
        learned: int,
        block: str,
    ) -> int:
        """`work`: operations for one sample, forwards and backwards."""
        forward, backward = (float(self.batch * one) for one in work)
        dimensions = (
            Dimension("sample", self.batch, "sample"),
            Dimension("channel", channels, "parameter"),
        )
        return self._add(
            Operator(name, type, dimensions, forward, backward, inputs, learned, block=block)
        )

    def _add(self, operator: Operator) -> int:
        self.operators.append(operator)
        return len(self.operators) - 1


# The networks that FlexFlow was measured with (its Table 3 and section 8.4), as operators. Batches,
# steps and hidden sizes are the paper's (section 8.1); a step's data is an operator, too. The paper
# names neither vocabularies nor the width of embeddings: the former are those of the data that it
# names, the latter is as wide as the recurrent layers, as Zaremba et al. have it.
STEPS = 40
# of the movie reviews: Kim, "Convolutional neural networks for sentence classification", 2014
_REVIEW_WORDS, _VERDICTS = 18_765, 2
# of the Penn Treebank as it is used: Zaremba, Sutskever and Vinyals, "Recurrent neural network
# regularization", 2014
_TREEBANK_WORDS = 10_000
# pieces of words: Wu et al., "Google's neural machine translation system", 2016
_PIECES = 32_000


def lenet(batch: int = 64) -> Operators:
    """The six layers of section 8.4."""
    return operators(architectures.lenet(), "LeNet", batch)


def alexnet(batch: int = 256) -> Operators:
    """Return AlexNet as in TensorFlow's benchmarks, which the paper follows: 12 layers, one of
    which only gives its input another shape."""
    return operators(architectures.alexnet_v2(227), "AlexNet", batch)


def inception_v3(batch: int = 64) -> Operators:
    """Without its auxiliary head; convolutions have biases, not batch normalisation."""
    return operators(architectures.inception_v3(), "Inception-v3", batch)


def resnet_101(batch: int = 64) -> Operators:
    """Return version 1; convolutions have biases, not batch normalisation."""
    return operators(architectures.resnet_v1((3, 4, 23, 3)), "ResNet-101", batch)


def rnntc(batch: int = 64, steps: int = STEPS, hidden: int = 1024) -> Operators:
    """Classifies a text after its last step."""
    net = Unrolled(batch)
    layer = net.embedding(net.tokens("words", steps), "embedding", _REVIEW_WORDS, hidden)
    for number in range(1, 5):
        layer = net.lstm(layer, f"lstm_{number}", hidden)
    net.softmax(layer[-1:], "softmax", _VERDICTS)
    return net.network("RNNTC")


def rnnlm(batch: int = 64, steps: int = STEPS, hidden: int = 2048) -> Operators:
    """Predicts the next word after each step. Section 8.4 has a variant with two steps."""
    net = Unrolled(batch)
    layer = net.embedding(net.tokens("words", steps), "embedding", _TREEBANK_WORDS, hidden)
    for number in range(1, 3):
        layer = net.lstm(layer, f"lstm_{number}", hidden)
    net.softmax(layer, "softmax", _TREEBANK_WORDS)
    return net.network("RNNLM")


def nmt(batch: int = 64, steps: int = STEPS, hidden: int = 1024) -> Operators:
    """Figure 14. Each layer of the decoder goes on from the state of the encoder's. The paper's
    attention is that of Bahdanau et al.; here a dot product scores, so that the layer has no
    weights but those that its channels divide."""
    net = Unrolled(batch)
    layer = net.embedding(net.tokens("source", steps), "source_embedding", _PIECES, hidden)
    states = []
    for number in range(1, 3):
        layer = net.lstm(layer, f"encoder_{number}", hidden)
        states.append(layer[-1])
    memory = net.together(layer, "memory")
    layer = net.embedding(net.tokens("target", steps), "target_embedding", _PIECES, hidden)
    for number, state in enumerate(states, 1):
        layer = net.lstm(layer, f"decoder_{number}", hidden, state)
    layer = net.attention(layer, memory, "attention")
    net.softmax(layer, "softmax", _PIECES)
    return net.network("NMT")


# each takes a batch size, recurrent ones also the number of steps
NETWORKS: Mapping[str, Callable[..., Operators]] = {
    "AlexNet": alexnet,
    "Inception-v3": inception_v3,
    "ResNet-101": resnet_101,
    "RNNTC": rnntc,
    "RNNLM": rnnlm,
    "NMT": nmt,
    "LeNet": lenet,
}
