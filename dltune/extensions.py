"""Extensions: additions to dltune by its systems and by packages of other people.

A package registers one `Extension` as an entry point of the group `dltune.extensions`:
`waiting = "dltune_waiting:EXTENSION"`. dltune's own systems register theirs as
`dltune/systems/NAME/extension.py`. An extension names what it adds as "module:object"; nothing of
that is imported before it is used, so a package that is broken affects only its own users.
"""

# no `from __future__ import annotations`: NamedTuple compiles each annotation that is a string, and
# every command imports this module
import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from dltune.base.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "dltune.extensions"
SYSTEMS = Path(__file__).parent / "systems"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Command(NamedTuple):
    """A command: its group in `dltune --help`, its line there, and the click command."""

    group: str
    summary: str
    target: str


class DocumentKind(NamedTuple):
    """A kind of document. `load`: the function that reads and checks a file. `main`: the table that
    `show --csv` prints by default, the first of these that has rows. `view`: the function that
    returns a document's `View`, from the document and a `Context`; empty: the page cannot show it.
    `compare`: the function that compares two files; empty: they cannot be compared. `is_evidence`:
    rules read it, so `dltune diagnose FILES` takes it."""

    load: str
    main: tuple[str, ...]
    view: str = ""
    compare: str = ""
    is_evidence: bool = False


class Hook(NamedTuple):
    """A module that runs inside a job (`dltune/frameworks/bootstrap`). It imports nothing of dltune
    and only the standard library, apart from what the job has imported.

    `folders` hold the module and those that it imports. The first import of one of `packages` in an
    interpreter of the job loads it; without packages, the start of the interpreter does.

    A module without `settings` has a function `start(answer, interpreter)`. It returns a list of
    (module of the job, function to call after its import), and a dict of what to call with the
    error if a module cannot be imported. A module with settings, which are names in `Means.hooks`,
    has a function for each that takes a `_dltune_report.Report` and returns such a list. The first
    of its packages is the framework.
    """

    module: str
    folders: tuple[str, ...]
    packages: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    def under(self, orders: Mapping[str, Any]) -> dict[str, Any]:
        """Return the hook with orders, as an adapter in the answer to an interpreter that starts.
        The module's `start` gets these orders instead of the answer."""
        return {
            "module": self.module,
            "folders": list(self.folders),
            "packages": list(self.packages),
            "orders": dict(orders),
        }


class Extension(NamedTuple):
    """What one package adds.

    - `commands`: by name.
    - `planners`: `planner.Planner` objects, by the name of their section.
    - `rules`: packages and modules that hold findings' rules.
    - `documents`: by the kind in a document's schema, such as "dltune.profile".
    - `measurements`: what `dltune doctor` measures with an option, such as "ranks".
    - `probes`: functions that start a probe for `dltune diagnose` (`watch/job_watch.py`).
    - `settings`: `Setting` objects for the search of `dltune tune`.
    - `hooks`: modules that run inside every job.
    """

    name: str
    commands: Mapping[str, Command] = _NOTHING
    planners: Mapping[str, str] = _NOTHING
    rules: tuple[str, ...] = ()
    documents: Mapping[str, DocumentKind] = _NOTHING
    measurements: Mapping[str, str] = _NOTHING
    probes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    hooks: tuple[Hook, ...] = ()


def load(target: str) -> Any:
    """Return the object that "module:object" names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


@functools.cache
def own() -> tuple[Extension, ...]:
    """Return dltune's core and its systems."""
    systems = sorted(path.parent.name for path in SYSTEMS.glob("*/extension.py"))
    modules = ["dltune.core", *(f"dltune.systems.{name}.extension" for name in systems)]
    return tuple(load(f"{module}:EXTENSION") for module in modules)


def extensions() -> tuple[Extension, ...]:
    """Return dltune's own extensions, then those of other packages."""
    return (*own(), *_others()[0])


def hooks() -> list[Hook]:
    """Return the modules that run inside every job."""
    return [hook for extension in extensions() for hook in extension.hooks]


def failures() -> Mapping[str, str]:
    """Return why extensions of other packages cannot be loaded, by name."""
    return _others()[1]


def names(registry: str) -> tuple[str, ...]:
    """Return all names in a field of the extensions, such as "planners", dltune's own first."""
    return tuple(name for extension in extensions() for name in getattr(extension, registry))


def find(registry: str, name: str) -> Any:
    """Return what is registered under `name` in a field of the extensions, such as "planners"; None
    if there is nothing. Raises UsageError if several extensions register it."""
    found = {
        extension.name: getattr(extension, registry)[name]
        for extension in extensions()
        if name in getattr(extension, registry)
    }
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} extensions provide {name!r}: {', '.join(found)}",
            remedy="uninstall all of them except one",
        )
    return next(iter(found.values()), None)


@functools.cache
def _others() -> tuple[tuple[Extension, ...], Mapping[str, str]]:
    loaded: list[Extension] = []
    failed: dict[str, str] = {}
    for name, entry in sorted(_entry_points()):
        where = f"the extension {name!r} ({entry.value})"
        try:
            extension = entry.load()
        except Exception as error:  # importing another package can raise anything
            failed[name] = f"{where} cannot be loaded: {type(error).__name__}: {error}"
            continue
        if isinstance(extension, Extension) and extension.name == name:
            loaded.append(extension)
        else:
            failed[name] = f"{where} is not an Extension with this name"
    return tuple(loaded), failed


def _entry_points() -> set[tuple[str, "EntryPoint"]]:
    """Importing importlib.metadata takes longer than the rest of `dltune --help`, so look first
    whether any package registers an extension."""
    if not any(_registering()):
        return set()
    from importlib.metadata import entry_points

    return {(entry.name, entry) for entry in entry_points(group=GROUP)}


def _registering() -> Iterator[bool]:
    """Yield for each installed package whether it registers an extension."""
    for folder in sys.path:
        with contextlib.suppress(OSError):  # it does not exist, or this user cannot read it
            for entry in os.scandir(folder or "."):
                if entry.name.endswith("-info"):
                    yield _registers(f"{entry.path}/entry_points.txt")


def _registers(file: str) -> bool:
    try:
        with open(file, "rb") as text:
            return f"[{GROUP}]".encode() in text.read()
    except OSError:  # most packages have none
        return False
