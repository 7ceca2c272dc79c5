"""What came from other tasks in a step, and how well that overlapped with the step's ops."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.profile.breakdown import kind
from dltune.profile.processes import receives
from dltune.report.timeline import measured
from dltune.schemas.profile import Profile, Step
from dltune.simulate.overlap import Bounds


def transfers(profile: Profile, step: Step) -> Iterator[str]:
    """What the bars of links mean, and E of the execution that was measured (TicTac, equations 1 to
    3), with the bounds that `dltune run` tells it by. Nothing of a step to which nothing came."""
    found = measured(step)
    if not found.links:
        return
    yield (
        "In the rows of links, a tensor's bar starts when the previous tensor arrived, or when "
        "the tensor was requested, and ends when it arrived. Other tensors can overlap with it."
    )
    came = {piece.node: piece.end for link in found.links for piece in link.slices}
    loads: dict[str, int] = {}
    for one in receives(profile, step):
        loads[one.sender] = max(loads.get(one.sender, 0), came.get(one.node, 0))
    if not loads:
        return
    waits = ("input", "communication")
    ops = [(s.start, s.end) for s in found.slices if kind(step.nodes[s.node].type) not in waits]
    bounds = Bounds.run(ops, loads.values())
    yield (
        f"The measured execution took {found.end / 1e6:.1f} ms. The lower bound is "
        f"{bounds.lower / 1e6:.1f} ms (L: only its ops, or only its busiest link), and the upper "
        f"bound {bounds.upper / 1e6:.1f} ms (U: nothing overlaps). Its efficiency E is "
        f"{bounds.efficiency(found.end):.2f}."
    )
