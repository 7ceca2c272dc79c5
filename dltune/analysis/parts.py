"""What a round of a profile's steps takes, and of that its parts: shares of the wall time."""

from __future__ import annotations

from dltune.documents.profile import Op, PartName, Profile, Step


def part(profile: Profile, name: PartName) -> float:
    """A part of the wall time of a round of the steps, as a share; 0 where it is not known."""
    whole = sum(part.seconds for step in profile.steps for part in step.parts)
    seconds = sum(p.seconds for step in profile.steps for p in step.parts if p.name == name)
    return seconds / whole if whole > 0 else 0.0


def working(profile: Profile) -> float:
    """The share of the wall time in which ops ran; all of it where that is not known."""
    return part(profile, "ops") if any(step.parts for step in profile.steps) else 1.0


def wall(profile: Profile) -> float:
    """Seconds of a round of the steps. Steps that take turns have each the same wall time from one
    execution to the next."""
    whole = sum(part.seconds for step in profile.steps for part in step.parts)
    return whole or max((step.wall.median for step in profile.steps), default=0.0)


def taken(step: Step, index: int, ops: tuple[Op, ...]) -> float:
    """Seconds of a node in the sampled execution, else by the median of its op."""
    node = step.nodes[index]
    if node.start is not None and node.end is not None:
        return node.end - node.start
    return (ops[node.op].own or 0.0) * node.repeats if node.op is not None else 0.0


def op_seconds(profile: Profile) -> float:
    """All ops of a round of the steps, under the job's own settings."""
    return sum(
        taken(step, index, profile.ops)
        for step in profile.steps
        for index in range(len(step.nodes))
    )
