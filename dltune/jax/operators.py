"""Operators of a network in JAX: what each computes at its local shapes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dltune.errors import UsageError

# rows of an embedding's table: reading takes the same for any number of them, adding gradients up
# does not (JAX makes them for the whole table)
_WORDS = 1000
_WINDOW = re.compile(r"(\d+)x(\d+)/(\d+)")
_AFTER = frozenset({"bias", "batch_norm", "relu", "dropout", "softmax"})
_ALONE = frozenset({"add", "concat", "mean", "input", "tokens"})
_LEARNING = frozenset({"conv", "depthwise", "dense", "lstm", "embedding", "attention"})
_KNOWN = _AFTER | _ALONE | _LEARNING | {"max_pool", "avg_pool"}


@dataclass(frozen=True)
class Request:
    """`type`: as in an operators document, such as "conv 3x3/2 bias relu": what is computed, the
    window and its stride, and what is done with each number then. `inputs`: shapes of what one part
    reads, the samples first and the channels last; `output`: of what it gives out. `data`: it reads
    what the step is given, of which no gradients are taken."""

    type: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    data: bool = False


def require_known(request: Request) -> None:
    """Raises UsageError for an operator that is not known here."""
    head, *rest = request.type.split()
    words = [head, *(word for word in rest if not _WINDOW.fullmatch(word))]
    for word in words:
        if word not in _KNOWN or (word != head and word not in _AFTER):
            raise UsageError(
                f"the operator type {request.type!r} has {word!r}, which is not known here",
                remedy=f"known are {', '.join(sorted(_KNOWN))}",
            )
    if not request.inputs and head not in ("input", "tokens"):
        raise UsageError(f"the operator type {request.type!r} reads nothing")


def operator(request: Request) -> tuple[Callable[..., Any], list[Any]]:
    """What it computes of its weights and inputs, and these."""
    import jax
    import numpy as np

    random = np.random.default_rng(0)
    head, *rest = request.type.split()
    found = next((match for word in rest if (match := _WINDOW.fullmatch(word))), None)
    window = tuple(map(int, found.groups())) if found else (1, 1, 1)
    after = [word for word in rest if word in _AFTER]
    compute, weights = _compute(head, request, window)
    channels = request.output[-1]
    arrays = [random.normal(size=shape).astype(np.float32) * 0.05 for shape in weights]
    scale = random.normal(size=channels).astype(np.float32)
    inputs: list[Any] = [random.normal(size=shape).astype(np.float32) for shape in request.inputs]
    if head == "embedding":
        inputs = [random.integers(0, _WORDS, request.output[:-1])]

    def run(weights: Any, scale: Any, *inputs: Any) -> Any:
        values = compute(weights, inputs)
        for word in ([head] if head in _AFTER else []) + after:
            values = _applied(word, values, scale)
        return values

    jax.eval_shape(run, arrays, scale, *inputs)
    return run, [arrays, scale, *inputs]


def _compute(
    head: str, request: Request, window: tuple[int, ...]
) -> tuple[Callable[[Any, Any], Any], list[tuple[int, ...]]]:
    """What the operator's own kind does, and the shapes of its weights."""
    import jax
    import jax.numpy as jnp

    output = request.output
    channels = output[-1]
    first = request.inputs[0] if request.inputs else output
    down, across, stride = window
    if head in ("conv", "depthwise"):
        groups = first[-1] if head == "depthwise" else 1
        pads = _pads(first, output, window)

        def convolve(weights: Any, inputs: Any) -> Any:
            return jax.lax.conv_general_dilated(
                inputs[0],
                weights[0],
                (stride, stride),
                pads,
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
                feature_group_count=groups,
            )

        return convolve, [(down, across, first[-1] // groups, channels)]
    if head in ("max_pool", "avg_pool"):
        pads = ((0, 0), *_pads(first, output, window), (0, 0))
        sizes, strides = (1, down, across, 1), (1, stride, stride, 1)
        most = head == "max_pool"

        def pool(_: Any, inputs: Any) -> Any:
            if most:
                return jax.lax.reduce_window(inputs[0], -jnp.inf, jax.lax.max, sizes, strides, pads)
            summed = jax.lax.reduce_window(inputs[0], 0.0, jax.lax.add, sizes, strides, pads)
            return summed / (down * across)

        return pool, []
    if head == "dense":
        reads = math.prod(first[1:]) if len(output) == 2 else first[-1]
        return (
            lambda weights, inputs: inputs[0].reshape(*output[:-1], reads) @ weights[0],
            [(reads, channels)],
        )
    if head == "lstm":
        before = request.inputs[1][-1] if len(request.inputs) > 1 else channels
        return _lstm, [(first[-1] + before, 4 * channels)]
    if head == "attention":
        return _attention, [(first[-1] + request.inputs[1][-1], channels)]
    if head == "embedding":
        return lambda weights, inputs: weights[0][inputs[0]], [(_WORDS, channels)]
    if head == "add":
        return lambda _, inputs: sum(inputs[1:], inputs[0]), []
    if head == "concat":
        stacked = len(first) < len(output)
        return (
            lambda _, inputs: jnp.stack(inputs, 1) if stacked else jnp.concatenate(inputs, -1)
        ), []
    if head == "mean":
        return lambda _, inputs: inputs[0].mean(tuple(range(1, len(first) - 1))), []
    if not request.inputs:  # the data
        return lambda weights, _: weights[0], [output]
    return lambda _, inputs: inputs[0], []


def _pads(
    read: Sequence[int], given: Sequence[int], window: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    """Zeros, or where negative positions left out, on both sides of height and width."""
    found = []
    for axis, size in enumerate(window[:2], 1):
        lacking = (given[axis] - 1) * window[2] + size - read[axis]
        found.append((lacking // 2, lacking - lacking // 2))
    return tuple(found)


def _lstm(weights: Any, inputs: Any) -> Any:
    """A step: the gates from what it reads and what the step before gave out, then the cell."""
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


def _applied(word: str, values: Any, scale: Any) -> Any:
    """What is done with each number; dropout's mask is a product."""
    import jax
    import jax.numpy as jnp

    if word == "relu":
        return jax.nn.relu(values)
    if word == "softmax":
        return jax.nn.softmax(values)
    if word == "batch_norm":
        axes = tuple(range(values.ndim - 1))
        mean, variance = values.mean(axes), values.var(axes)
        return (values - mean) * jax.lax.rsqrt(variance + 1e-3) * scale + scale
    return values + scale if word == "bias" else values * jnp.abs(scale)
