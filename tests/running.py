"""Processes that still run, known by what they were started with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

# a variable of the environment that only one test's processes have
MARK = "DLTUNE_TEST_MARK"


def with_argument(argument: object) -> list[int]:
    """Those with this in their command line."""
    return [pid for pid, words in _processes("cmdline") if str(argument).encode() in words]


def with_mark(mark: str) -> list[int]:
    """Those with this mark in the environment that they were started with."""
    return [pid for pid, words in _processes("environ") if f"{MARK}={mark}".encode() in words]


def _processes(file: str) -> Iterator[tuple[int, bytes]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), (entry / file).read_bytes()
            except OSError:
                continue
