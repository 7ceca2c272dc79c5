"""What a plan divides of a network, and over which axes of its mesh.

This runs inside jobs and stands in the files that `--emit` writes, as it is: standard library only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

# tells why the job cannot go on under the plan, and what to do
Refuse = Callable[[str, str], NoReturn]
# what a dimension of an array is divided over: nothing, an axis of the mesh, or several
Entry = str | tuple[str, ...] | None

# names of weights, and which of their dimensions is the one that the operator's parameter dimension
# divides, counted from the end
_PARAMETER = {
    "kernel": -1,
    "bias": -1,
    "gamma": -1,
    "beta": -1,
    "moving_mean": -1,
    "moving_variance": -1,
    "embeddings": -1,
    "recurrent_kernel": -1,
    "pointwise_kernel": -1,
    "depthwise_kernel": -2,
    # PyTorch's, whose dimensions are asked for in this order
    "weight": -1,
    "running_mean": -1,
    "running_var": -1,
}
# a depthwise convolution has its channels before what it makes of each
_DEPTHWISE = {**_PARAMETER, "kernel": -2}


class Layouts:
    """A plan's `mesh` (devices along each axis) and `operators`, each with `name`, `type`, `rank`
    (dimensions of its output), `axes` (which of them each axis divides, None: none), `parameter`
    (the one that divides its weights) and `weights` (where they are, such as "model/dense").
    `nested`: whether an operator has the weights of layers within its own, too."""

    def __init__(self, plan: dict[str, Any], *, nested: bool = False) -> None:
        self.plan = plan
        self._nested = nested
        self.mesh = tuple(plan["mesh"])
        self.axes = tuple(f"axis{n}" for n in range(len(self.mesh)))
        self._operators = {one["name"]: one for one in plan["operators"]}
        self._weights = {one["weights"]: one for one in plan["operators"] if one["weights"]}
        self._patterns = {where: _pattern(where) for where in self._weights}
        # a model that is loaded, or built before it is called, may lack its own name in its paths
        self._below = {
            where: _pattern(where.partition("/")[2]) for where in self._weights if "/" in where
        }

    @property
    def weights(self) -> tuple[str, ...]:
        """Where the operators' weights are."""
        return tuple(self._weights)

    def taken(
        self, weights: Mapping[str, bool], met: Collection[str], unknown: Iterable[str]
    ) -> dict[str, Any]:
        """What has come of the plan, to be told. `weights`: by path, whether each is divided;
        `met`: operators whose outputs were; `unknown`: weights that are no operator's."""
        owners = {owner for path in weights for owner in self.owners(path)}
        return {
            "weights": len(weights),
            "divided": sum(weights.values()),
            "outputs": len(met),
            "unknown": sorted(unknown),
            "unmet": [one for one in self.weights if one not in owners],
        }

    def operator(self, path: str) -> str | None:
        """The one whose outputs a layer's are; None: no operator's."""
        if path in self._operators:
            return path
        below = [name for name in self._operators if name.partition("/")[2] == path]
        return below[0] if len(below) == 1 else None

    def owners(self, path: str) -> list[str]:
        """Whose weight this is by the plan; one place, if all is well."""
        exact = [where for where, one in self._patterns.items() if one.fullmatch(path)]
        below = [where for where, one in self._below.items() if one.fullmatch(path)]
        return exact or below or ([*self._above(path)] if self._nested else [])

    def owner(self, path: str) -> str | None:
        """The one place. Raises ValueError where there are several."""
        owners = self.owners(path)
        if len(owners) > 1:
            several = " and ".join(map(repr, owners))
            raise ValueError(
                f"the weight {path!r} belongs to several operators of the plan: {several}"
            )
        return owners[0] if owners else None

    def _above(self, path: str) -> Iterator[str]:
        """Operators that the layer is a part of whose weight this is."""
        for where in self._weights:
            names = {where, where.partition("/")[2] or where}
            if any(path.startswith(f"{name}/") for name in names):
                yield where

    def weight(self, path: str, shape: Sequence[int]) -> tuple[Entry, ...]:
        """How the weight is divided, one entry for each of its dimensions. Raises ValueError where
        it is not one operator's, or cannot be divided evenly."""
        owner = self.owner(path)
        if owner is None:
            raise ValueError(f"the weight {path!r} belongs to no operator of the plan")
        operator = self._weights[owner]
        axes = self._axes(operator, operator["parameter"])
        entries: list[Entry] = [None] * len(shape)
        if axes:
            table = _DEPTHWISE if operator["type"].split()[0] == "depthwise" else _PARAMETER
            at = table.get(path.rpartition("/")[2])
            if at is None:
                raise ValueError(
                    f"the plan divides the weight {path!r}, but which of its dimensions to divide "
                    "is unknown"
                )
            if len(shape) < -at or shape[at] % self._size(axes):
                raise ValueError(
                    f"the weight {path!r} of shape {tuple(shape)} cannot be divided evenly into "
                    f"{self._size(axes)}"
                )
            entries[at] = _entry(axes)
        return tuple(entries)

    def learns_in_parts(self, path: str) -> bool:
        """Whether the operator that the weight is of has its weights divided."""
        operator = self._weights[self.owners(path)[0]]
        return bool(self._axes(operator, operator["parameter"]))

    def pixels(self, operator: str) -> bool:
        """Whether what it gives out is divided by more than its first and last dimensions."""
        one = self._operators[operator]
        return any(at not in (None, 0, one["rank"] - 1) for at in one["axes"])

    def rank(self, operator: str) -> int:
        """Of what it gives out: so many dimensions."""
        found: int = self._operators[operator]["rank"]
        return found

    def output(self, operator: str, shape: Sequence[int]) -> tuple[Entry, ...]:
        """How what the operator gives out is divided. What cannot be divided evenly, such as the
        samples of a last batch, is not. Raises ValueError where it has other dimensions."""
        one = self._operators[operator]
        if len(shape) != one["rank"]:
            raise ValueError(
                f"the output of {operator!r} has the shape {tuple(shape)}, but the plan divides "
                f"{one['rank']} dimensions"
            )
        return tuple(self._even(self._axes(one, place), size) for place, size in enumerate(shape))

    def input(self, operator: str, shape: Sequence[int]) -> tuple[Entry, ...]:
        """How what the operator reads is to be divided: as what it gives out, and all of what its
        weights mix. Left to the partitioner, gradients of undivided weights may be added up over
        devices that have the whole of what they read."""
        one = self._operators[operator]
        last = one["rank"] - 1
        entries: list[Entry] = [None] * len(shape)
        for place in range(one["rank"]):
            at = place - last - 1 if place == last else place  # a mean has fewer between
            alike = place in (0, last) or len(shape) == one["rank"]
            if alike and place != one["parameter"]:
                entries[at] = self._even(self._axes(one, place), shape[at])
        return tuple(entries)

    def batch(self, shape: Sequence[int]) -> tuple[Entry, ...]:
        """How an array of a batch is divided, its samples first: as those of the first operator."""
        if not shape:
            return ()
        first = next(iter(self._operators.values()))
        return (self._even(self._axes(first, 0), shape[0]), *[None] * (len(shape) - 1))

    def _axes(self, operator: dict[str, Any], dimension: int | None) -> tuple[str, ...]:
        if dimension is None:
            return ()
        return tuple(
            name for name, at in zip(self.axes, operator["axes"], strict=True) if at == dimension
        )

    def _size(self, axes: tuple[str, ...]) -> int:
        return math.prod(self.mesh[self.axes.index(name)] for name in axes)

    def _even(self, axes: tuple[str, ...], size: int) -> Entry:
        return _entry(axes) if axes and size % self._size(axes) == 0 else None


def require_known(unknown: Sequence[str], refuse: Refuse) -> None:
    """No weight that is no operator's."""
    if unknown:
        more = f", nor do {len(unknown) - 1} more" if unknown[1:] else ""
        refuse(
            f"the weight {unknown[0]!r} belongs to no operator of the plan{more}",
            "plan again for the current network, or pass --partial to leave such weights undivided",
        )


def _pattern(where: str) -> re.Pattern[str]:
    """Of its weights' paths; those of a recurrent layer are its cell's."""
    return re.compile(rf"{re.escape(where)}/(?:[^/]+_cell/)?(?:{'|'.join(_PARAMETER)})")


def _entry(axes: tuple[str, ...]) -> Entry:
    return axes[0] if len(axes) == 1 else axes
