"""The parts that the system for reading data registers."""

from __future__ import annotations

from dltune.extensions import Command, Extension

EXTENSION = Extension(
    name="lmdb",
    commands={
        "io-report": Command(
            "Measure",
            "Find out why reading the data is slow.",
            "dltune.systems.lmdb.commands:io_report",
        ),
        "lmdb": Command(
            "Data", "Inspect and check an LMDB file.", "dltune.systems.lmdb.commands:lmdb"
        ),
    },
    planners={"io": "dltune.systems.lmdb.planner:PLANNER"},
)
