"""Wall time of a round of a profile's steps, and its parts as shares of that time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from dltune.analysis.keys import Key, parse
from dltune.schemas.profile import (
    Op,
    PartName,
    Profile,
    Step,
)

# of the op time; where less of it was measured, nothing follows for the whole
ENOUGH = 0.8


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


def unrecorded(profile: Profile) -> float:
    """Seconds of a round of the steps while its ops are not recorded; as recorded where the
    cost of recording was not measured."""
    overhead = profile.counters.overhead if profile.counters else None
    return wall(profile) / max(1.0, overhead.median if overhead else 1.0)


def may_be_recording(profile: Profile) -> float:
    """Seconds of a round of the steps that recording them can have taken, in ops too, where that
    was not measured; 0 where it was."""
    if profile.counters and profile.counters.overhead:
        return 0.0
    return wall(profile) * (1 - 1 / profile.framework.capabilities.recording)


def recording(profile: Profile) -> float:
    """Seconds of a round of the steps, between its ops, that it took to record them: at most the
    executor's part."""
    took = wall(profile) - unrecorded(profile)
    return min(took, part(profile, "executor") * wall(profile))


def measured(profile: Profile) -> float:
    """The share of the time in which ops ran that is of ops whose threads were tried, or that have
    the same ones always. Others have other shapes at each step. All of it where the job's own times
    are not known, or where dltune sets no thread count for some ops, whatever their shapes."""
    tried = [op for op in profile.ops if op.times or is_compiled(op)]
    ran = part(profile, "ops") * wall(profile)
    sets = profile.framework.capabilities.sets_every_op
    if not sets or ran <= 0 or any(op.own is None for op in tried):
        return 1.0
    return min(1.0, sum((op.own or 0.0) * op.count for op in tried) / ran)


def is_compiled(op: Op) -> bool:
    """True if torch.compile has made it, for a number of threads that it keeps."""
    return "cpp_fused_" in op.type


def unmeasured(profile: Profile) -> Iterator[str]:
    """Yield caveats to know before drawing conclusions from ops."""
    if profile.partial is None and (share := measured(profile)) < ENOUGH:
        yield (
            f"{1 - share:.0%} of the op time is in ops whose shapes change at each step; dltune "
            "could not measure their best thread count, so a plan gives all ops the same thread "
            "count"
        )


def taken(step: Step, index: int, ops: tuple[Op, ...]) -> float:
    """Seconds of a node in the sampled execution, else by the median of its op."""
    node = step.nodes[index]
    if node.start is not None and node.end is not None:
        return node.end - node.start
    return (ops[node.op].own or 0.0) * node.repeats if node.op is not None else 0.0


def portion(profile: Profile, which: Callable[[Key], bool]) -> tuple[float, str]:
    """The share of the op time, under the job's own settings, that is in ops of such keys, and the
    type of those that takes most of it (empty where there are none)."""
    total = 0.0
    types: dict[str, float] = defaultdict(float)
    for op in profile.ops:
        own = (op.own or 0.0) * op.count
        total += own
        if (key := parse(op)) and which(key):
            types[op.type] += own
    share = sum(types.values()) / total if total > 0 else 0.0
    return share, max(types, key=types.__getitem__, default="")


def op_seconds(profile: Profile) -> float:
    """All ops of a round of the steps, under the job's own settings."""
    return sum(
        taken(step, index, profile.ops)
        for step in profile.steps
        for index in range(len(step.nodes))
    )
