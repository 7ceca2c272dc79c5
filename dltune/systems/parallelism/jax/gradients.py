"""A trial of a mesh's gradients against those of one device, as compilers have been seen to be
wrong.

XLA's CPU build (JAX 0.10) makes gradients twice as large where a convolution's height is divided
over one axis of a 2 x 2 mesh and the other axis divides nothing;
docs/explanation/plan-parallelism.md describes it.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dltune.base.errors import UsageError
from dltune.job import ranks
from dltune.systems.parallelism.jax import joined

# of the largest gradient of an array; floats are added up in other orders
TOLERANCE = 1e-3
_WORKER = Path(__file__).resolve().parent / "gradients_rank.py"


@dataclass(frozen=True)
class Difference:
    """`operators`: the pair, by name, the second reading the first. `array`: "loss", "input" or a
    weight. `error`: the largest, of the largest gradient; `ratio`: how many times as large all
    are."""

    operators: tuple[str, ...]
    array: str
    error: float
    ratio: float


def differences(
    plan: Mapping[str, Any],
    pairs: Sequence[tuple[int, ...]] | None = None,
    python: str = sys.executable,
) -> list[Difference]:
    """Return the differences from one device by more than TOLERANCE, for small operators divided as
    those of `plan` (as `_dltune_layouts.Layouts` has it), one process for each device.

    `pairs`: operators of which the second reads the first, by number; by default neighbours in the
    plan. Those divided alike are tried once. Raises UsageError when `python` has no JAX, or the
    processes fail.
    """
    operators = plan["operators"]
    if pairs is None:
        pairs = [(n, n + 1) for n in range(len(operators) - 1)] or [(0,)]
    distinct: dict[tuple[object, ...], tuple[int, ...]] = {}
    for pair in pairs:
        ranks_fall = all(
            operators[a]["rank"] >= operators[b]["rank"] for a, b in itertools.pairwise(pair)
        )
        kept = pair if ranks_fall else pair[-1:]
        distinct.setdefault(tuple(_kind(operators[n]) for n in kept), kept)
    chosen = [*distinct.values()]
    found = []
    for pair, errors in zip(chosen, _tried(plan, chosen, python), strict=True):
        names = tuple(operators[n]["name"] for n in pair)
        found += [
            Difference(names, array, error, ratio)
            for array, (error, ratio) in errors.items()
            if not error <= TOLERANCE
        ]
    return found


def suspects(plan: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """Pairs to be tried before a job trains with the plan: convolutions like those that have been
    seen to go wrong, each reading one that is divided as it is itself."""
    return [
        (n, n)
        for n, one in enumerate(plan["operators"])
        if one["weights"] and one["rank"] == 4 and None in one["axes"] and {1, 2} & {*one["axes"]}
    ]


def require_same(
    plan: Mapping[str, Any],
    pairs: Sequence[tuple[int, ...]] | None = None,
    python: str = sys.executable,
) -> None:
    """Raises UsageError, naming the first, when there are `differences`."""
    if found := differences(plan, pairs, python):
        one = found[0]
        raise UsageError(
            f"divided as planned, {' and '.join(map(repr, one.operators))} have wrong gradients: "
            f"XLA makes those of {one.array} {one.ratio:.2f} times as large as on one device, with "
            f"an error of up to {one.error:.0%}",
            remedy="divide these operators differently",
        )


def _kind(operator: Mapping[str, Any]) -> tuple[object, ...]:
    head = operator["type"].split()[0]
    axes, parameter = operator["axes"], operator["parameter"]
    return head, operator["rank"], tuple(axes), parameter, bool(operator["weights"])


def _tried(
    plan: Mapping[str, Any], pairs: Sequence[tuple[int, ...]], python: str
) -> list[dict[str, tuple[float, float]]]:
    count = math.prod(plan["mesh"])
    with tempfile.TemporaryDirectory(prefix="dltune-") as name:
        folder = Path(name)
        result = folder / "differences.json"
        orders = {
            "plan": plan,
            "pairs": pairs,
            "address": ranks.free_address(),
            "result": str(result),
        }
        (folder / "orders.json").write_text(json.dumps(orders))
        command = [python, str(_WORKER), str(folder / "orders.json")]
        joined.run(folder, count, command, "cannot check the gradients of the plan")
        found: list[dict[str, tuple[float, float]]] = json.loads(result.read_text())
        return found
