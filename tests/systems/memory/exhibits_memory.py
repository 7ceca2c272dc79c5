"""A plan under which a small network needs as little memory as it can."""

from __future__ import annotations

import exhibits
import msgspec

from dltune.plan.plan import with_sections
from dltune.schemas.profile import Profile
from dltune.systems.memory import decide
from dltune.systems.memory.section import Memory

TYPES = ()
MAIN = {"dltune.plan:memory": "document"}
# its section is in the plan with several sections
PAGE = ()


def lean(found: Profile) -> Memory:
    """As little memory as its step can do with, results of 1 MiB each: some are computed twice."""
    step = found.steps[0]
    nodes = tuple(
        msgspec.structs.replace(node, output_bytes=2**20, stateful=not node.inputs)
        for node in step.nodes
    )
    step = msgspec.structs.replace(step, nodes=nodes)
    return decide.decide(msgspec.structs.replace(found, steps=(step,))).section


def documents() -> dict[str, msgspec.Struct]:
    profile = exhibits.profile()
    plan = exhibits.plan(profile, "per-type+co-run")
    return {"dltune.plan:memory": with_sections(plan, threads=None, memory=lean(profile))}
