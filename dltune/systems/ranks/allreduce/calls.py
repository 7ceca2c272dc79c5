"""The calls of a job that reduce gradients, recovered from its captured graphs.

Horovod's tape and optimizer wrap each gradient's allreduce into a separate conditional ("is there
more than one rank?"), made in the order of the list that they receive. TensorFlow numbers these
conditionals within the call's name scope (`DistributedGradientTape_Allreduce/cond_3/...`), so the
number gives an op its place in the list, whatever shapes the gradients have.
"""

from __future__ import annotations

import collections
import functools
import re
from dataclasses import dataclass

from dltune.base.errors import UsageError
from dltune.schemas import graph
from dltune.schemas.profile import (
    Node,
    Op,
    Profile,
    Step,
)

SINGLE, GROUPED = "HorovodAllreduce", "HorovodGroupedAllreduce"
_PLACE = re.compile(r"(?P<scope>.*?_Allreduce(?:_\d+)?)/cond(?:_(?P<number>\d+))?/")
# TensorFlow's names in a kernel's key, and those of its Python
_DTYPES = {"float": "float32", "half": "float16", "double": "float64"}


@dataclass(frozen=True)
class Gradient:
    """`node`: its allreduce among the step's nodes. `name`: as Horovod calls it. Size in bytes."""

    node: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Call:
    """A list of dense gradients that step `step` of the profile hands to Horovod, in its order."""

    step: int
    scope: str
    gradients: tuple[Gradient, ...]

    @functools.cached_property
    def places(self) -> dict[int, int]:
        """By node, the place of its gradient in the list."""
        return {gradient.node: place for place, gradient in enumerate(self.gradients)}

    @property
    def bytes(self) -> int:
        return sum(gradient.bytes for gradient in self.gradients)


def calls(profile: Profile) -> tuple[Call, ...]:
    """Return all calls of the profile's steps.

    Raises UsageError when there is none, when the job groups its gradients itself, or when the
    profile does not show which gradient an allreduce is for.
    """
    found: list[Call] = []
    kinds: collections.Counter[str] = collections.Counter()
    for index, step in enumerate(profile.steps):
        kinds.update(node.type for node in step.nodes if node.type.startswith("Horovod"))
        found += _of_step(index, step, profile.ops)
    if found:
        return tuple(found)
    if kinds[GROUPED]:
        raise UsageError(
            f"the profiled job groups its gradients itself ({kinds[GROUPED]} grouped allreduces): "
            "dltune cannot change their order",
            remedy="profile the job without groups (and not under a plan that has bins)",
        )
    if not kinds:
        raise UsageError(
            "this profile has no Horovod operations: the job did not reduce its gradients",
            remedy="profile the job with two ranks or more: dltune profile -- horovodrun -np 2 ...",
        )
    raise UsageError(
        "none of the profile's Horovod operations reduces a list of gradients; the profile has "
        + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(4)),
        remedy="reduce gradients with hvd.DistributedGradientTape or hvd.DistributedOptimizer",
    )


def _of_step(index: int, step: Step, ops: tuple[Op, ...]) -> list[Call]:
    scopes: dict[str, dict[int, Gradient]] = {}
    others: dict[str, set[int]] = collections.defaultdict(set)  # sparse gradients travel otherwise
    for position, node in enumerate(step.nodes):
        match = _PLACE.match(node.name)
        if match is None or not node.type.startswith("Horovod"):
            continue
        place = int(match["number"] or 0)
        if node.type != SINGLE:
            others[match["scope"]].add(place)
            continue
        members = scopes.setdefault(match["scope"], {})
        if place in members:
            raise UsageError(
                f"step {step.name}: {match['scope']} reduces gradient {place} twice: the "
                "allreduces of the graph cannot be matched to gradients",
                remedy="reduce each gradient once in a step",
            )
        members[place] = _gradient(position, node, step, ops)
    for scope, members in scopes.items():
        known = others[scope] | set(members)
        if missing := set(range(max(known))) - known:
            raise UsageError(
                f"step {step.name}: {scope} reduces gradients up to number {max(known)}, but "
                f"number {min(missing)} is not in the graph: the allreduces of the graph cannot be "
                "matched to gradients",
                remedy="reduce all gradients of the list in the profiled step",
            )
    return [
        Call(index, scope, tuple(members[place] for place in sorted(members)))
        for scope, members in scopes.items()
    ]


def _gradient(position: int, node: Node, step: Step, ops: tuple[Op, ...]) -> Gradient:
    op = None if node.op is None else ops[node.op]
    if op is None or not op.inputs:
        raise UsageError(
            f"step {step.name}: {node.name} did not run in the profiled steps: the shape of its "
            "gradient is unknown",
            remedy="profile the job with two ranks or more",
        )
    tensor = graph.parse_key(op.key).inputs[0]
    return Gradient(
        node=position,
        name=node.name.rpartition("/")[2].removeprefix(SINGLE + "_"),
        dtype=_DTYPES.get(tensor.dtype, tensor.dtype),
        shape=tensor.shape,
        bytes=tensor.bytes,
    )
