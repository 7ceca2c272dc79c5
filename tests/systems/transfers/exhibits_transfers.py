"""A worker of a parameter server, and the order in which it is to receive."""

from __future__ import annotations

import msgspec
import served

from dltune.plan.plan import merge_section
from dltune.schemas.plan import Plan
from dltune.schemas.profile import Profile
from dltune.systems.transfers import decide
from dltune.systems.transfers.section import Transfers

TYPES = (Transfers,)
MAIN = {"dltune.plan:transfers": "document"}
PAGE = ("dltune.profile:worker", "dltune.plan:transfers")


def worker() -> Profile:
    """Of a server's two parameters the second comes first, as in TicTac's first figure: each op
    waits for both."""
    made = served.profile(served.first_figure(), 1.0, 1.0)
    (step,) = made.steps
    times = ((0.0, 1.0), (0.0, 2.0), (2.0, 3.0), (3.0, 4.0))
    nodes = tuple(
        msgspec.structs.replace(node, start=start, end=end)
        for node, (start, end) in zip(step.nodes, times, strict=True)
    )
    return msgspec.structs.replace(made, steps=(msgspec.structs.replace(step, nodes=nodes),))


def ordered(found: Profile) -> Plan:
    section = decide.decide(found, "improved", decide.Cluster())
    return merge_section(None, "transfers", section, found.machine, found)


def documents() -> dict[str, msgspec.Struct]:
    profile = worker()
    return {"dltune.profile:worker": profile, "dltune.plan:transfers": ordered(profile)}
