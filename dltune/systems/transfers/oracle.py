"""The time that the ops and transfers of a step take: the paper's time oracle (TicTac, section
5)."""

from __future__ import annotations

from dltune.schemas.profile import Op, Profile, Step


def op_seconds(profile: Profile) -> list[float]:
    """By op of the profile, the least measured time of one run, with as many threads as the job
    gave an op, or the next fewer that were measured. 0 for one that waits for something else: it
    takes no computing."""
    return [_least(op, profile.settings.intra) for op in profile.ops]


def node_seconds(profile: Profile, step: Step) -> list[float]:
    """By node, of all its runs in a step."""
    ops = op_seconds(profile)
    return [0.0 if node.op is None else ops[node.op] * node.repeats for node in step.nodes]


def _least(op: Op, threads: int) -> float:
    counts = {time.threads for time in op.times}
    nearest = max((n for n in counts if n <= threads), default=min(counts, default=0))
    return min((time.min for time in op.times if time.threads == nearest), default=0.0)
