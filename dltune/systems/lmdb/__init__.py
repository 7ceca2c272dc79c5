"""Reading of training data from LMDB files: measured, explained and planned.

Training jobs import these names from here: `Reader`, `Records`, `ReadAhead`, `Options`, `Index`.
Each is loaded when it is first asked for, so that dltune's own start does not wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dltune.systems.lmdb.format.index import Index
    from dltune.systems.lmdb.reader.database import ReadAhead
    from dltune.systems.lmdb.reader.options import Options
    from dltune.systems.lmdb.reader.reader import Reader, Record, Records

__all__ = ["Index", "Options", "ReadAhead", "Reader", "Record", "Records"]

_MODULES = {
    "Index": "format.index",
    "Options": "reader.options",
    "ReadAhead": "reader.database",
    "Reader": "reader.reader",
    "Record": "reader.reader",
    "Records": "reader.reader",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
