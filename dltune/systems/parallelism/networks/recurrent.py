"""Recurrent networks as operators: each layer unrolled, one operator for each step.

Operations are counted as in `layer.py`; sizes are those of 32-bit numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dltune.simulate.networks import FLOAT
from dltune.systems.parallelism.schemas.operators import (
    SCHEMA,
    Dimension,
    Input,
    Operator,
    Operators,
    Region,
    Weights,
)

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
    """Each method adds a layer that reads the outputs of the layers whose operators it receives,
    and returns its operators: one for each step."""

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
