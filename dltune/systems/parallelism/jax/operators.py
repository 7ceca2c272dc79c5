"""Operators of a network in JAX: the function of each at its local shapes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dltune.base.errors import UsageError
from dltune.systems.parallelism.jax.kinds import EQUATION, WORDS, computed
from dltune.systems.parallelism.model.request import Request

__all__ = ["Request", "operator", "require_known", "unknown_word"]

_WINDOW = re.compile(r"(\d+)x(\d+)/(\d+)")
_AFTER = frozenset(
    {
        *("bias", "batch_norm", "dropout", "gelu", "layer_norm", "relu", "scale", "sigmoid"),
        *("softmax", "tanh"),
    }
)
_ALONE = frozenset({"add", "concat", "einsum", "input", "loss", "mean", "multiply", "tokens"})
_LEARNING = frozenset({"conv", "depthwise", "dense", "lstm", "embedding", "attention"})
_KNOWN = _AFTER | _ALONE | _LEARNING | {"max_pool", "avg_pool"}


def unknown_word(request: Request) -> str | None:
    """Return the word of its type that is not known here."""
    head, *rest = request.type.split()
    shapes = (_WINDOW, EQUATION) if head == "einsum" else (_WINDOW,)
    words = [head, *(word for word in rest if not any(one.fullmatch(word) for one in shapes))]
    unknown = (word for word in words if word not in (_KNOWN if word == head else _AFTER))
    return next(unknown, None)


def require_known(request: Request) -> None:
    """Raises UsageError for an operator that is not known here."""
    if word := unknown_word(request):
        raise UsageError(
            f"the operator type {request.type!r} contains the unknown word {word!r}",
            remedy=f"use only {', '.join(sorted(_KNOWN))}",
        )
    if not request.inputs and request.type.split()[0] not in ("input", "tokens"):
        raise UsageError(
            f"an operator of the type {request.type!r} has no inputs", remedy="give it an input"
        )


def operator(request: Request) -> tuple[Callable[..., Any], list[Any]]:
    """Return its function of weights and inputs, and these."""
    import jax
    import numpy as np

    random = np.random.default_rng(0)
    head, *rest = request.type.split()
    found = next((match for word in rest if (match := _WINDOW.fullmatch(word))), None)
    window = tuple(map(int, found.groups())) if found else (1, 1, 1)
    after = [word for word in rest if word in _AFTER]
    compute, weights = computed(head, request, window)
    channels = request.output[-1] if request.output else 1
    arrays = [random.normal(size=shape).astype(np.float32) * 0.05 for shape in weights]
    scale = random.normal(size=channels).astype(np.float32)
    inputs: list[Any] = [random.normal(size=shape).astype(np.float32) for shape in request.inputs]
    if head == "embedding":
        inputs = [random.integers(0, WORDS, request.output[:-1])]

    def run(weights: Any, scale: Any, *inputs: Any) -> Any:
        values = compute(weights, inputs)
        for word in ([head] if head in _AFTER else []) + after:
            values = _applied(word, values, scale)
        return values

    jax.eval_shape(run, arrays, scale, *inputs)
    return run, [arrays, scale, *inputs]


def _applied(word: str, values: Any, scale: Any) -> Any:
    """Return the result of a function of each number; dropout's mask is a product."""
    import jax
    import jax.numpy as jnp

    if word in ("gelu", "relu", "sigmoid", "softmax", "tanh"):
        return getattr(jax.nn, word)(values)
    if word == "layer_norm":
        off = values - values.mean(-1, keepdims=True)
        return off * jax.lax.rsqrt((off * off).mean(-1, keepdims=True) + 1e-3) * scale + scale
    if word == "batch_norm":
        axes = tuple(range(values.ndim - 1))
        mean, variance = values.mean(axes), values.var(axes)
        return (values - mean) * jax.lax.rsqrt(variance + 1e-3) * scale + scale
    return values + scale if word == "bias" else values * jnp.abs(scale)
