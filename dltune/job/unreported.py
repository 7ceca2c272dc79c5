"""Find a process of the job that runs TensorFlow without having reported in.

Python hands its environment on to what it starts, but -I, -S or a cleaned PYTHONPATH keep the
bootstrap out. Such a job would run plain and never be heard of; what it has mapped tells.
"""

from __future__ import annotations

from collections.abc import Collection

from dltune.errors import UsageError
from dltune.proc import tree
from dltune.proc.maps import mappings
from dltune.proc.process import command

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
    parents = {pid: found.parent for pid, found in tree.session(session).items()}
    for pid in parents:
        if not _descends(pid, parents, reported) and _has_tensorflow(pid):
            return pid
    return None


def _descends(pid: int, parents: dict[int, int], reported: Collection[int]) -> bool:
    """Whether `pid` reported, or was forked (perhaps) from one that did: it has TensorFlow from
    there, or still the same command line, as horovodrun's tests of what can be imported."""
    if pid in reported:
        return True
    parent = parents.get(pid)
    while parent in parents:
        assert parent is not None
        if parent in reported and (_has_tensorflow(parent) or command(parent) == command(pid)):
            return True
        parent = parents.get(parent)
    return False


def _has_tensorflow(pid: int) -> bool:
    try:
        return any(LIBRARY in mapping.path for mapping in mappings(pid))
    except OSError:
        return False
