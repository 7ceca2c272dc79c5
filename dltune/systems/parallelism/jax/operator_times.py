"""Times of operators on this machine, by JAX: each at its local shapes, alone in a process.

Run as `python -m dltune.systems.parallelism.jax.operator_times`, it reads a list of requests as
JSON from stdin and prints their times. It needs nothing but JAX and this package, because the
Python in which operators are timed can be without the rest that dltune needs. So imports at the top
are of the standard library, or of modules of dltune that need no more.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dltune.base.errors import UsageError
from dltune.job.subprocesses import OF_DLTUNE, python_path


@dataclass(frozen=True)
class Request:
    """`type`: as in an operators document, such as "conv 3x3/2 bias relu": the operation, the
    window and its stride, and the functions of each number then. `inputs`: shapes of one part's
    inputs, the samples first and the channels last; `output`: of its output. `data`: it reads the
    inputs of the step, of which no gradients are taken.

    These properties decide the time of an operator's part.
    """

    type: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    data: bool = False

    def __str__(self) -> str:
        return f"{self.type!r} from {' and '.join(map(str, self.inputs))} to {self.output}"


# rows of an embedding's table: reading takes the same for any number of them, adding gradients up
# does not (JAX makes them for the whole table)
WORDS = 1000
EQUATION = re.compile(r"([A-Za-z]+),([A-Za-z]+)->([A-Za-z]+)")


def computed(
    head: str, request: Request, window: tuple[int, ...]
) -> tuple[Callable[[Any, Any], Any], list[tuple[int, ...]]]:
    """Return the function of the operator's kind on its weights and inputs, and the shapes of its
    weights. Raises UsageError for shapes that do not go together.

    These are the kinds of operators at their local shapes; `operator` adds the functions of each
    number that follow.
    """
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
    """Return the function of an operator of a network in JAX at its local shapes, of weights and
    inputs, and these."""
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


REPEATS = 7
# so many seconds of each in every repeat, one call at least
_SECONDS = 0.02
_OWN = 2  # of an operator's arguments, its weights and what scales its channels
_WRONG_USE = UsageError.exit_code


@dataclass(frozen=True)
class Times:
    """Seconds: medians over repeats in which all requests take turns. `both`: forwards and then
    backwards, to all that it reads and learns."""

    forward: float
    both: float

    @property
    def backward(self) -> float:
        return max(0.0, self.both - self.forward)


def measured(
    requests: Sequence[Request], python: str = sys.executable, repeats: int = REPEATS
) -> list[Times]:
    """Return the times of each request, in a separate process. Raises UsageError for an operator
    that is not known here, for shapes that do not fit, and where `python` has no JAX."""
    for one in requests:
        require_known(one)
    done = subprocess.run(
        [python, "-m", "dltune.systems.parallelism.jax.operator_times"],
        input=json.dumps({"repeats": repeats, "requests": [asdict(one) for one in requests]}),
        env={**os.environ, "PYTHONPATH": python_path(OF_DLTUNE), "DLTUNE_DISABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == _WRONG_USE:
        raise UsageError(
            done.stderr.strip(), remedy="correct the operator's type or shapes, or omit --times"
        )
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or ["no error message"]
        raise UsageError(
            f"cannot time operators with {python}: {why[0]}",
            remedy="install JAX for it: pip install 'dltune[jax]'",
        )
    return [Times(**one) for one in json.loads(done.stdout)]


def _timed(requests: Sequence[Request], repeats: int) -> list[Times]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    calls: list[Callable[[], object]] = []
    for request in requests:
        run, arguments = operator(request)
        shape = jax.eval_shape(run, *arguments).shape
        if shape != request.output:
            raise UsageError(
                f"an operator of the type {request.type!r} with inputs {request.inputs} has the "
                f"output {shape}, not {request.output}",
                remedy=None,  # the process that started this one has it
            )
        some = arguments[:_OWN] if request.data else arguments
        learned = [n for n, one in enumerate(some) if _floats(one)]
        on_device = [jax.tree.map(jnp.asarray, one) for one in arguments]
        gradient = jnp.ones(shape, np.float32)
        calls.append(functools.partial(_done, jax.jit(run), *on_device))
        calls.append(functools.partial(_done, jax.jit(_both(run, learned)), gradient, *on_device))
    counts = []
    for call in calls:
        call()  # compiled
        began = time.perf_counter()
        call()
        counts.append(max(1, round(_SECONDS / max(time.perf_counter() - began, 1e-7))))
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, count, taken in zip(calls, counts, seconds, strict=True):
            began = time.perf_counter()
            for _ in range(count):
                call()
            taken.append((time.perf_counter() - began) / count)
    medians = [statistics.median(taken) for taken in seconds]
    return [Times(forward, both) for forward, both in zip(medians[::2], medians[1::2], strict=True)]


def _done(compiled: Callable[..., Any], *arguments: Any) -> None:
    import jax

    jax.block_until_ready(compiled(*arguments))


def _floats(argument: Any) -> bool:
    return isinstance(argument, list) or argument.dtype.kind == "f"


def _both(run: Callable[..., Any], learned: Sequence[int]) -> Callable[..., Any]:
    import jax

    def both(gradient: Any, *arguments: Any) -> Any:
        def of_learned(*chosen: Any) -> Any:
            given = list(arguments)
            for place, one in zip(learned, chosen, strict=True):
                given[place] = one
            return run(*given)

        values, back = jax.vjp(of_learned, *(arguments[n] for n in learned))
        return values, back(gradient)

    return both


def main() -> None:
    """Requests from stdin, their times to stdout."""
    asked = json.load(sys.stdin)
    requests = [
        Request(one["type"], tuple(map(tuple, one["inputs"])), tuple(one["output"]), one["data"])
        for one in asked["requests"]
    ]
    try:
        found = _timed(requests, asked["repeats"])
    except UsageError as error:
        print(error, file=sys.stderr)
        sys.exit(_WRONG_USE)
    print(json.dumps([asdict(one) for one in found]))


if __name__ == "__main__":
    main()
