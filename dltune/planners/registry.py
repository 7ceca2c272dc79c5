"""The planners that there are: dltune's own, and those of other packages (entry points of the group
`dltune.planners`, as `transfers = "package.module:PLANNER"`).

Nothing is imported before it is asked for, so that a package that is broken troubles only who needs
its planner.
"""

from __future__ import annotations

import functools
import graphlib
import importlib
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from dltune.errors import UsageError
from dltune.planners.planner import Planner

GROUP = "dltune.planners"
OWN = ("threads", "settings", "transfers", "memory", "io", "allreduce", "buckets", "parallelism")


def names() -> tuple[str, ...]:
    """Of all planners, dltune's own first."""
    return (*OWN, *sorted(_others()))


def known(name: str) -> bool:
    """Whether there is a planner of that name; they are words, as paths of files seldom are."""
    return name in OWN or (name.isidentifier() and name in _others())


@functools.cache
def planner(name: str) -> Planner[Any]:
    """Raises UsageError when there is none of that name, or its package does not work."""
    if name in OWN:
        own: Planner[Any] = importlib.import_module(f"dltune.planners.{name}.planner").PLANNER
        return own
    entries = _others().get(name, [])
    if len(entries) > 1:
        raise UsageError(
            f"{len(entries)} packages provide a planner {name!r}: "
            + ", ".join(entry.value for entry in entries),
            remedy="uninstall all of them except one",
        )
    if not entries:
        raise UsageError(
            f"unknown planner {name!r}",
            remedy=f"install the package that provides it, or use one of {', '.join(names())}",
        )
    where = f"the planner {name!r} ({entries[0].value})"
    try:
        loaded = entries[0].load()
    except Exception as error:  # whatever another package does when it is imported
        raise UsageError(
            f"{where} cannot be loaded: {type(error).__name__}: {error}",
            remedy="repair or uninstall the package that provides it",
        ) from error
    whole = all(hasattr(loaded, part) for part in ("name", "summary", "section"))
    if not isinstance(loaded, Planner) or not whole or loaded.name != name:
        raise UsageError(
            f"{where} is not a Planner with this name, a summary and a section",
            remedy="report this to the authors of the package that provides it",
        )
    return loaded


def composed(sections: Iterable[str]) -> list[str]:
    """Names of planners in the order in which their sections take effect on a job: each after those
    that it names itself (`Planner.after`). Raises UsageError when two want to come after each
    other."""
    chosen = sorted(sections)
    order = graphlib.TopologicalSorter[str]()
    for name in chosen:
        order.add(name, *sorted(set(planner(name).after).intersection(chosen)))
    try:
        return list(order.static_order())
    except graphlib.CycleError as error:
        circle = ", ".join(error.args[1][1:])
        raise UsageError(
            f"the planners {circle} cannot be ordered: each must come after the other",
            remedy="report this to the authors of the packages that provide them",
        ) from None


@functools.cache
def _others() -> Mapping[str, list[EntryPoint]]:
    found: dict[str, dict[str, EntryPoint]] = {}
    for entry in entry_points(group=GROUP):
        if entry.name not in OWN:  # an environment may stand twice on the path
            found.setdefault(entry.name, {})[entry.value] = entry
    return {name: list(entries.values()) for name, entries in found.items()}
