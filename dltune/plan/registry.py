"""The planners: those that dltune's core, its systems and extensions of other packages register."""

from __future__ import annotations

import functools
import graphlib
from collections.abc import Iterable
from typing import Any

from dltune import extensions
from dltune.base.errors import UsageError
from dltune.plan.planner import Planner


def names() -> tuple[str, ...]:
    """Return the names of all planners, dltune's own first."""
    return extensions.names("planners")


@functools.cache
def planner(name: str) -> Planner[Any]:
    """Return the planner `name`. Raises UsageError if there is none, or if it cannot be loaded."""
    target = extensions.find("planners", name)
    if target is None:
        broken = "; ".join(extensions.failures().values())
        raise UsageError(
            f"the system or package with the planner {name!r} is not installed"
            + (f" ({broken})" if broken else ""),
            remedy=f"install it, or use one of {', '.join(names())}",
        )
    where = f"the planner {name!r} ({target})"
    try:
        loaded = extensions.load(target)
    except Exception as error:  # importing another package can raise anything
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
    that it names itself (`Planner.after`), and before those of `Planner.before`. Raises UsageError
    when two want to come after each other."""
    chosen = sorted(sections)
    order = graphlib.TopologicalSorter[str]()
    for name in chosen:
        earlier = {*planner(name).after, *(o for o in chosen if name in planner(o).before)}
        order.add(name, *sorted(earlier.intersection(chosen)))
    try:
        return list(order.static_order())
    except graphlib.CycleError as error:
        circle = ", ".join(error.args[1][1:])
        raise UsageError(
            f"the planners {circle} cannot be ordered: each must come after the other",
            remedy="report this to the authors of the packages that provide them",
        ) from None
