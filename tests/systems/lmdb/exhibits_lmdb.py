"""A plan for two files."""

from __future__ import annotations

import msgspec
import synthetic

from dltune.plan.plan import new_plan
from dltune.systems.lmdb.section import FilePlan, IoPlan

TYPES = (IoPlan,)
MAIN = {"dltune.plan:io": "sections.io.files"}
PAGE = ()


def documents() -> dict[str, msgspec.Struct]:
    files = tuple(
        FilePlan(f"/data/{name}.mdb", "strided", None, 4096, "ahead") for name in ("train", "test")
    )
    return {
        "dltune.plan:io": new_plan(synthetic.machine(2), sections={"io": IoPlan("", files, ())})
    }
