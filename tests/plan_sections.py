"""Sections of core on a small network, and settings that change its graph or leave it."""

from __future__ import annotations

import msgspec
import synthetic

from dltune.schemas.plan import OpPlan, Prediction, Threads, Uniform
from dltune.schemas.profile import Profile
from dltune.schemas.settings import Choice, SettingsPlan

HERE = synthetic.machine(2)
PLAIN = synthetic.network(HERE, layers=2)
OP = OpPlan("Conv2D", 2, "spread", 1.0, 2.0)
THREADS = Threads(
    "per-type", Uniform(2, 1), False, False, 0.0, (OP,), (Prediction("per-type", 1.0, 1.0, 1.0),)
)
UNIFORM = msgspec.structs.replace(THREADS, ops=())


def tuned(*chosen: str) -> SettingsPlan:
    choices = tuple(Choice(*choice.split("=")) for choice in chosen)
    return SettingsPlan(("python",), choices, "rounding", None, None, (), (), 1.0, None)


FUSED = tuned("batch_norm=fused")  # another graph
TCMALLOC = tuned("allocator=tcmalloc")  # the same


def under(settings: SettingsPlan) -> Profile:
    return msgspec.structs.replace(PLAIN, under=settings)
