"""Find a process of the job that runs TensorFlow without having reported in.

Python hands its environment on to what it starts, but -I, -S or a cleaned PYTHONPATH keep the
bootstrap out. Such a job would run plain and never be heard of; what it has mapped tells.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from dltune.errors import UsageError

LIBRARY = "libtensorflow_framework.so"


def require_all_reported(session: int, reported: Collection[int]) -> None:
    """Raises UsageError when a process of the `session` runs TensorFlow unheard of."""
    if (pid := unreported(session, reported)) is not None:
        raise UsageError(
            f"pid {pid} runs TensorFlow but never reported in: its Python was started with "
            "-I, -S or a PYTHONPATH of its own, or sets its environment aside",
            remedy="start it so that it takes PYTHONPATH from its environment",
        )


def unreported(session: int, reported: Collection[int]) -> int | None:
    """A process of the `session` that has TensorFlow loaded without having reported in, or None.

    A process forked from one that reported has the bootstrap from it, and is fine.
    """
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (found := _parent(entry, session)) is not None:
            parents[int(entry.name)] = found
    for pid in parents:
        if not _descends(pid, parents, reported) and _has_tensorflow(pid):
            return pid
    return None


def _parent(entry: Path, session: int) -> int | None:
    try:
        # the command's name stands in parentheses and may hold spaces
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]) if int(fields[3]) == session else None


def _descends(pid: int, parents: dict[int, int], reported: Collection[int]) -> bool:
    """Whether `pid` reported, or was forked (perhaps) from one that did: it has TensorFlow from
    there, or still the same command line, as horovodrun's tests of what can be imported."""
    if pid in reported:
        return True
    parent = parents.get(pid)
    while parent in parents:
        assert parent is not None
        if parent in reported and (_has_tensorflow(parent) or _command(parent) == _command(pid)):
            return True
        parent = parents.get(parent)
    return False


def _command(pid: int) -> bytes | None:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None


def _has_tensorflow(pid: int) -> bool:
    try:
        return LIBRARY in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False
