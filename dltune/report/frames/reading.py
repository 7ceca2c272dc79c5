"""From a file to one of its tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dltune import extensions
from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.gate.history import SCHEMA as HISTORY
from dltune.gate.history import Entry
from dltune.plan import plan as plans
from dltune.report.frames import profile
from dltune.report.frames.table import (
    Table,
    ending,
    named,
    tables,
)
from dltune.schemas.plan import Plan
from dltune.schemas.profile import Profile


@dataclass(frozen=True)
class History:
    gates: tuple[Entry, ...]


def table(path: Path, name: str | None = None) -> Table:
    """The table of the document in the file that is called so; without a name its main one.

    Raises UsageError for a file that is no document or has faults, and for a name that it has no
    table of.
    """
    schema = HISTORY if _is_history(path) else documents.schema(path)
    kind = extensions.find("documents", schema.rpartition("/")[0])
    if kind is None:
        raise UsageError(
            f"{path} is a {schema!r} document, which has no tables",
            remedy=f"name a file of: {', '.join(extensions.names('documents'))}; or install the "
            "system or package that reads this kind",
        )
    document = extensions.load(kind.load)(path)
    found = tables(History(tuple(document)) if isinstance(document, list) else document)
    if isinstance(document, Profile):
        found["ops"] = profile.ops(document)
    if name is not None:
        return named(found, name)
    tables_of_plan = plans.tables(document) if isinstance(document, Plan) else ()
    main = [one for name in (*tables_of_plan, *kind.main) for one in ending(found, name)]
    return next((one for one in main if next(one.rows(), None)), main[0])


def _is_history(path: Path) -> bool:
    """A history is no JSON as a whole, but a line of it for each gate."""
    try:
        with open(path, "rb") as file:
            return file.read(64).startswith(b'{"schema":"%b"' % HISTORY.encode())
    except OSError:
        return False
