"""From a file to one of its tables."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dltune.documents import files
from dltune.documents.profile import Profile
from dltune.errors import UsageError
from dltune.frames import profile
from dltune.frames.table import DOCUMENT, Table, ending, named, tables
from dltune.gate.history import SCHEMA as HISTORY
from dltune.gate.history import Entry


@dataclass(frozen=True)
class Kind:
    """`load` of `module` reads such documents. `main`: what is meant where no table is named, the
    first of these that has rows."""

    module: str
    main: tuple[str, ...]
    load: str = "load"


@dataclass(frozen=True)
class History:
    gates: tuple[Entry, ...]


KINDS: Mapping[str, Kind] = {
    "dltune.profile": Kind("dltune.documents.profile", ("ops",)),
    "dltune.plan": Kind(
        "dltune.planners.plan",
        # the last for a plan whose sections list nothing, such as one of memory
        (
            "threads.ops",
            "threads.predictions",
            "settings.effects",
            "files",
            "allreduce.cores",
            "parallelism.operators",
            DOCUMENT,
        ),
    ),
    "dltune.bench": Kind("dltune.documents.bench", ("settings",)),
    "dltune.tune": Kind("dltune.documents.tune", ("trials",)),
    "dltune.io": Kind("dltune.documents.io", ("files", "strided")),
    "dltune.horovod": Kind("dltune.documents.horovod", ("ranks",)),
    "dltune.gate": Kind("dltune.documents.gate", ("verdicts",)),
    "dltune.gate-baseline": Kind("dltune.documents.gate", ("measured",), "load_baseline"),
    "dltune.gate-history": Kind("dltune.gate.history", ("points",)),
    "dltune.graph": Kind("dltune.documents.graph", ("nodes",)),
    "dltune.machine": Kind("dltune.documents.machine", ("cores",)),
    "dltune.diagnosis": Kind("dltune.documents.diagnosis", ("findings",)),
    "dltune.roofs": Kind("dltune.documents.roofs", ("peaks",)),
    "dltune.operators": Kind("dltune.documents.operators", ("operators",)),
    "dltune.operator-times": Kind("dltune.documents.operator_times", ("parts",)),
    "dltune.topology": Kind("dltune.documents.topology", ("devices",)),
}


def table(path: Path, name: str | None = None) -> Table:
    """The table of the document in the file that is called so; without a name its main one.

    Raises UsageError for a file that is no document or has faults, and for a name that it has no
    table of.
    """
    schema = HISTORY if _is_history(path) else files.schema(path)
    kind = KINDS.get(schema.rpartition("/")[0])
    if kind is None:
        raise UsageError(
            f"{path} is a {schema!r} document, which has no tables",
            remedy=f"name a file of: {', '.join(KINDS)}",
        )
    document = getattr(importlib.import_module(kind.module), kind.load)(path)
    found = tables(History(tuple(document)) if isinstance(document, list) else document)
    if isinstance(document, Profile):
        found["ops"] = profile.ops(document)
    if name is not None:
        return named(found, name)
    main = [one for name in kind.main for one in ending(found, name)]
    return next((one for one in main if next(one.rows(), None)), main[0])


def _is_history(path: Path) -> bool:
    """A history is no JSON as a whole, but a line of it for each gate."""
    try:
        with open(path, "rb") as file:
            return file.read(64).startswith(b'{"schema":"%b"' % HISTORY.encode())
    except OSError:
        return False
