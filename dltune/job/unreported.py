"""Find a process of the job that runs a framework without having reported in.

Python hands its environment on to what it starts, but -I, -S or a cleaned PYTHONPATH keep the
bootstrap out. Such a job would run plain and never be heard of; what it has mapped tells.
"""

from __future__ import annotations

from collections.abc import Collection

from dltune.base.errors import UsageError
from dltune.frameworks.capabilities import FRAMEWORKS, framework
from dltune.system.proc import tree
from dltune.system.proc.maps import mappings
from dltune.system.proc.process import command

# what a process has mapped that runs a framework
LIBRARIES = {known.library: name for name, known in FRAMEWORKS.items() if known.library}


def require_all_reported(
    session: int, reported: Collection[int], frameworks: Collection[str]
) -> None:
    """Raises UsageError when a process of the `session` runs a framework unheard of. `frameworks`:
    those that have reported elsewhere, as documents call them; a helper of another one is no
    matter where there is one."""
    if (pid := unreported(session, reported, frameworks or FRAMEWORKS)) is not None:
        title = framework(loaded(pid)).title  # it may have ended meanwhile
        raise UsageError(
            f"could not attach to pid {pid}, which runs {title}: its Python was started "
            "with -I, -S or -E, or with another PYTHONPATH",
            remedy="start Python without these options, with the PYTHONPATH from its environment",
        )


def unreported(
    session: int, reported: Collection[int], frameworks: Collection[str] = tuple(FRAMEWORKS)
) -> int | None:
    """A process of the `session` that has one of these loaded without having reported in, or None.

    A process forked from one that reported has the bootstrap from it, and is fine.
    """
    parents = {pid: found.parent for pid, found in tree.session(session).items()}
    for pid in parents:
        if not _descends(pid, parents, reported) and loaded(pid) in frameworks:
            return pid
    return None


def _descends(pid: int, parents: dict[int, int], reported: Collection[int]) -> bool:
    """Whether `pid` reported, or was forked (perhaps) from one that did: it has a framework from
    there, or still the same command line, as horovodrun's tests of what can be imported."""
    if pid in reported:
        return True
    parent = parents.get(pid)
    while parent in parents:
        assert parent is not None
        if parent in reported and (loaded(parent) or command(parent) == command(pid)):
            return True
        parent = parents.get(parent)
    return False


def loaded(pid: int) -> str | None:
    """The framework that a process has loaded, as documents call it; None: none, or it may not be
    seen."""
    try:
        paths = [mapping.path for mapping in mappings(pid)]
    except OSError:
        return None
    return next((name for part, name in LIBRARIES.items() if any(part in p for p in paths)), None)
