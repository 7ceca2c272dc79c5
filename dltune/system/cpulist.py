"""The kernel's list notation for CPU numbers: "0-3,8,10-11"."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dltune.system.proc.entry import text


def parse(listed: str) -> frozenset[int]:
    """CPU numbers of a list; the empty list is "" (some files hold only a newline).

    Raises ValueError when the text is not such a list.
    """
    cpus: set[int] = set()
    for part in filter(None, listed.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def read(path: Path) -> frozenset[int]:
    """CPU numbers of a file of the kernel's; none where there is no such list."""
    try:
        return parse(text(path))
    except ValueError:
        return frozenset()


def show(cpus: Iterable[int]) -> str:
    """The shortest list for these CPUs; `parse` reads it back."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
