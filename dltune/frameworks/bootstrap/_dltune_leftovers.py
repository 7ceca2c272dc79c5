"""Note temporary files that frameworks remove only when their process exits by itself.

A job that dltune stops cannot remove them, so dltune does: each is a link in the job's folder.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any


class _Tempfile:
    """The module tempfile, for one module of a framework."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return getattr(tempfile, name)

    def NamedTemporaryFile(self, *arguments: Any, **options: Any) -> Any:  # noqa: N802
        file = tempfile.NamedTemporaryFile(*arguments, **options)  # noqa: SIM115
        self._note(file.name)
        return file

    def mkdtemp(self, *arguments: Any, **options: Any) -> Any:
        made = tempfile.mkdtemp(*arguments, **options)
        self._note(made)
        return made

    def _note(self, path: str) -> None:
        made = Path(path).absolute()
        with contextlib.suppress(OSError):  # dltune has ended
            (self._folder / f"leftover-{made.name}").symlink_to(made)


def note(module: ModuleType, folder: Path) -> None:
    """From now on, note the temporary files of this module."""
    if hasattr(module, "tempfile"):
        vars(module)["tempfile"] = _Tempfile(folder)
