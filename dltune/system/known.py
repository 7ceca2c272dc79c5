"""Machines that are planned for without being at hand."""

from __future__ import annotations

import difflib
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.schemas import machine as document
from dltune.schemas.machine import (
    SCHEMA,
    Core,
    Machine,
    Tier,
)

KNOWN = {
    # the paper's machine (sections II-C and IV-A): Intel Xeon Phi 7250, 34 tiles of two cores that
    # share 1 MB of L2, four hardware threads a core, 16 GB of MCDRAM in cache mode. In flat mode
    # the DDR4 is a tier beside it: 96 GB, as nodes of NERSC's Cori have, and half of the some 90
    # GB/s that STREAM comes to each way
    "knl-7250": Machine(
        schema=SCHEMA,
        name="Intel Xeon Phi 7250",
        cores=tuple(
            Core(cpus=tuple(range(core, 4 * 68, 68)), tile=core // 2, socket=0, numa=0)
            for core in range(68)
        ),
        shared_cache=2**20,
        memory=16 * 2**30,
        smt_throughput=1.03,  # Table III: 41.1 s one after the other, 39.9 s on hyper-threads
        tiers=(Tier("DDR4", 96 * 2**30, 45e9),),
    )
}


def find(name_or_path: str) -> Machine:
    """A known machine, or the one in a machine file.

    Raises UsageError, with near matches, when it is neither.
    """
    if name_or_path in KNOWN:
        return KNOWN[name_or_path]
    path = Path(name_or_path)
    if path.exists() or path.parent != Path() or path.suffix in (".json", ".gz"):
        return document.load(path)
    near = difflib.get_close_matches(name_or_path.lower(), KNOWN, n=3, cutoff=0.4)
    raise UsageError(
        f"unknown machine {name_or_path!r}: neither a built-in machine nor a file"
        + (f"; did you mean {' or '.join(near)}?" if near else ""),
        remedy=f"name a machine file, or one of: {', '.join(sorted(KNOWN))}",
    )
