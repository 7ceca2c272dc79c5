"""Systems that are installed, and what each contributes to tests of the whole.

Each folder of a system has a module `exhibits_SYSTEM` with `TYPES` (structs of its documents and
sections), `documents()` (a document of each kind, by kind; what follows a colon tells documents of
one kind apart), `MAIN` (the table that `dltune show --csv` prints by default, by the same names)
and `PAGE` (names of the documents that the page of all kinds shows).
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import dltune

SYSTEMS = tuple(
    path.parent.name
    for path in sorted((Path(dltune.__file__).parent / "systems").glob("*/extension.py"))
)


def exhibits() -> dict[str, Any]:
    """Return the module `exhibits_SYSTEM` of each system that is installed."""
    return {name: importlib.import_module(f"exhibits_{name}") for name in SYSTEMS}
