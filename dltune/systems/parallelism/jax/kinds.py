"""The functions of the kinds of operators in JAX, at their local shapes."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from dltune.base.errors import UsageError
from dltune.systems.parallelism.model.request import Request

# rows of an embedding's table: reading takes the same for any number of them, adding gradients up
# does not (JAX makes them for the whole table)
WORDS = 1000
EQUATION = re.compile(r"([A-Za-z]+),([A-Za-z]+)->([A-Za-z]+)")


def computed(
    head: str, request: Request, window: tuple[int, ...]
) -> tuple[Callable[[Any, Any], Any], list[tuple[int, ...]]]:
    """Return the function of the operator's kind on its weights and inputs, and the shapes of its
    weights. Raises UsageError for shapes that do not go together."""
    import jax
    import jax.numpy as jnp

    output = request.output
    channels = output[-1]
    first = request.inputs[0] if request.inputs else output
    down, across, stride = window
    if head in ("conv", "depthwise", "max_pool", "avg_pool"):
        first, output = _pictures(request)
    if head in ("conv", "depthwise"):
        groups = first[-1] if head == "depthwise" else 1
        pads = _pads(first, output, window)

        def convolve(weights: Any, inputs: Any) -> Any:
            values = jax.lax.conv_general_dilated(
                inputs[0].reshape(first),
                weights[0],
                (stride, stride),
                pads,
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
                feature_group_count=groups,
            )
            return _joined(values.reshape(request.output), inputs)

        return convolve, [(down, across, first[-1] // groups, channels)]
    if head in ("max_pool", "avg_pool"):
        pads = ((0, 0), *_pads(first, output, window), (0, 0))
        sizes, strides = (1, down, across, 1), (1, stride, stride, 1)
        most = head == "max_pool"

        def pool(_: Any, inputs: Any) -> Any:
            read = inputs[0].reshape(first)
            if most:
                values = jax.lax.reduce_window(read, -jnp.inf, jax.lax.max, sizes, strides, pads)
            else:
                values = jax.lax.reduce_window(read, 0.0, jax.lax.add, sizes, strides, pads)
            return values.reshape(request.output) / (1 if most else down * across)

        return pool, []
    if head == "dense":
        rows = math.prod(output[:-1])
        if math.prod(first) % rows:
            raise UsageError(f"{request}: the input has no rows of equal length", remedy=None)
        reads = math.prod(first) // rows
        return (
            lambda weights, inputs: _joined(
                inputs[0].reshape(*output[:-1], reads) @ weights[0], inputs
            ),
            [(reads, channels)],
        )
    if head == "lstm":
        before = request.inputs[1][-1] if len(request.inputs) > 1 else channels
        return _lstm, [(first[-1] + before, 4 * channels)]
    if head == "attention":
        return _attention, [(first[-1] + request.inputs[1][-1], channels)]
    if head == "embedding":
        return lambda weights, inputs: weights[0][inputs[0]], [(WORDS, channels)]
    if head == "add":
        return lambda _, inputs: sum(inputs[1:], inputs[0]), []
    if head == "multiply":
        return lambda _, inputs: math.prod(inputs[1:], start=inputs[0]), []
    if head == "einsum":
        return _einsum(request), []
    if head == "loss":
        return functools.partial(_loss, request), []
    if head == "concat":
        part = tuple(map(slice, output))  # of channels, where these are divided

        def concatenate(_: Any, inputs: Any) -> Any:
            stacked = len(first) < len(output)
            return (jnp.stack(inputs, 1) if stacked else jnp.concatenate(inputs, -1))[part]

        return concatenate, []
    if head == "mean":
        return lambda _, inputs: inputs[0].mean(tuple(range(1, len(first) - 1))), []
    if not request.inputs:  # the data
        return lambda weights, _: weights[0], [output]
    return lambda _, inputs: inputs[0], []


def _pictures(request: Request) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes that it reads and gives out, with height and width: a profile has none of size
    1."""
    found = []
    for shape in (request.inputs[0], request.output):
        if not 2 <= len(shape) <= 4:
            raise UsageError(f"{request}: images need 2 to 4 dimensions", remedy=None)
        found.append((shape[0], *[1] * (4 - len(shape)), *shape[1:]))
    read, given = found
    if len(request.inputs[0]) < 4 and any(
        a < b for a, b in zip(read[1:3], given[1:3], strict=True)
    ):
        raise UsageError(f"{request}: the height and width of the input are unknown", remedy=None)
    return read, given


def _joined(values: Any, inputs: Any) -> Any:
    """Return the values with the inputs that a fused kernel adds."""
    for one in inputs[1:]:
        values = values + one.reshape(values.shape)
    return values


def _pads(
    read: Sequence[int], given: Sequence[int], window: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    """Zeros, or where negative positions left out, on both sides of height and width."""
    found = []
    for axis, size in enumerate(window[:2], 1):
        lacking = (given[axis] - 1) * window[2] + size - read[axis]
        found.append((lacking // 2, lacking - lacking // 2))
    return tuple(found)


def _einsum(request: Request) -> Callable[[Any, Any], Any]:
    """Return the einsum of two tensors, in the order in which their sizes fit the letters."""
    words = request.type.split()
    found = EQUATION.fullmatch(words[1]) if len(words) > 1 else None
    if found and len(found[3]) == len(request.output) and len(request.inputs) == 2:
        for order in ((0, 1), (1, 0)):
            sizes = dict(zip(found[3], request.output, strict=True))
            shapes = []
            for word, at in zip((found[1], found[2]), order, strict=True):
                count = math.prod(request.inputs[at])
                for letter in word:  # one that is not given out, where all others are known
                    others = [sizes.get(other, 0) for other in word if other != letter]
                    sizes.setdefault(letter, count // math.prod(others) if all(others) else 0)
                shapes.append(tuple(sizes[letter] for letter in word))
            if [*map(math.prod, shapes)] == [math.prod(request.inputs[at]) for at in order]:
                return functools.partial(_product, words[1], order, shapes)
    raise UsageError(f"{request}: the shapes do not fit the equation", remedy=None)


def _product(
    equation: str, order: Sequence[int], shapes: Sequence[tuple[int, ...]], _: Any, inputs: Any
) -> Any:
    import jax.numpy as jnp

    operands = (inputs[at].reshape(shape) for at, shape in zip(order, shapes, strict=True))
    return jnp.einsum(equation, *operands)


def _loss(request: Request, _: Any, inputs: Any) -> Any:
    """The cross entropy of each row of numbers, with a class or a share of each class."""
    import jax
    import jax.numpy as jnp

    places = range(len(inputs))
    at = next((n for n in places if request.inputs[n][:-1] == request.output), None)
    if at is None:
        raise UsageError(f"{request}: no input has one row per element of the output", remedy=None)
    logits = jax.nn.log_softmax(inputs[at])
    labels = next((inputs[n] for n in places if n != at), jnp.zeros(request.output))
    if labels.shape == logits.shape:
        return -(labels * logits).sum(-1)
    classes = jnp.abs(labels).astype(jnp.int32) % logits.shape[-1]
    return -jnp.take_along_axis(logits, classes[..., None], -1)[..., 0]


def _lstm(weights: Any, inputs: Any) -> Any:
    """A step: the gates from its input and the previous step's output, then the cell."""
    import jax
    import jax.numpy as jnp

    read = inputs[0]
    channels = weights[0].shape[1] // 4
    width = weights[0].shape[0] - read.shape[-1]
    before = inputs[1] if len(inputs) > 1 else jnp.zeros((read.shape[0], width), read.dtype)
    cell = inputs[2] if len(inputs) > 2 else jnp.zeros((read.shape[0], channels), read.dtype)
    gates = jnp.concatenate([read, before], 1) @ weights[0]
    enters, leaves, stays, shows = jnp.split(gates, 4, 1)
    cell = jax.nn.sigmoid(stays) * cell + jax.nn.sigmoid(enters) * jnp.tanh(leaves)
    return jax.nn.sigmoid(shows) * jnp.tanh(cell)


def _attention(weights: Any, inputs: Any) -> Any:
    """Over a memory's steps, scored by dot products; a product with weights then, and its tanh."""
    import jax
    import jax.numpy as jnp

    read, memory = inputs
    width = min(read.shape[-1], memory.shape[-1])
    scores = jnp.einsum("nc,nsc->ns", read[:, :width], memory[..., :width])
    mixed = jnp.einsum("ns,nsc->nc", jax.nn.softmax(scores, 1), memory)
    return jnp.tanh(jnp.concatenate([mixed, read], 1) @ weights[0])
