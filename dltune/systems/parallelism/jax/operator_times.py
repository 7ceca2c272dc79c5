"""Times of operators on this machine, by JAX: each at its local shapes, alone in a process.

Run as `python -m dltune.systems.parallelism.jax.operator_times`, it reads a list of requests as
JSON from stdin and prints their times. It needs nothing but JAX and this package.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dltune.base.errors import UsageError
from dltune.job.launch import OF_DLTUNE, python_path
from dltune.systems.parallelism.jax.operators import Request, operator, require_known

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
