"""Between the ops of an eager step, which Python calls one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from dltune.schemas.profile import Node, Profile, is_awaited

# seconds; to call an op takes less, through several layers of modules too
LONG = 200e-6


class Pause(NamedTuple):
    """So many `seconds` before an op in which none runs. `first`: it is its step's first."""

    seconds: float
    before: Node
    first: bool = False


def pauses(profile: Profile) -> Iterator[Pause]:
    """Yield the pauses of a round of eager steps, of each one execution; a graph has none. A pause
    behind a sum of several ranks is a wait for the sum, not Python's."""
    if not profile.framework.capabilities.is_eager:
        return
    for step in profile.steps:
        ran = [
            (node, node.start, node.end)
            for node in step.nodes
            if node.start is not None and node.end is not None
        ]
        for (before, _, end), (node, start, _) in pairwise(ran):
            if not is_awaited(before.type, node.type):
                yield Pause(max(0.0, start - end), node)
        if ran:
            turn = sum(part.seconds for part in step.parts)
            yield Pause(max(0.0, turn - (ran[-1][2] - ran[0][1])), ran[0][0], first=True)
