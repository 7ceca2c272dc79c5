"""Ranks of Horovod, with hostile texts."""

from __future__ import annotations

import hostile_ranks
import msgspec

from dltune.systems.ranks.allreduce.section import AllreducePlan
from dltune.systems.ranks.horovod.schema import Horovod

TYPES = (Horovod, AllreducePlan)
MAIN = {"dltune.horovod": "ranks"}
PAGE = ("dltune.horovod",)


def documents() -> dict[str, msgspec.Struct]:
    return {"dltune.horovod": hostile_ranks.ranks()}
