"""What native code includes."""

from __future__ import annotations

import re
from pathlib import Path

import dltune

PACKAGE = Path(dltune.__file__).parent
SYSTEMS = PACKAGE / "systems"
SOURCES = [path for end in ("cc", "h") for path in sorted(PACKAGE.rglob(f"*.{end}"))]


def system_of(path: Path) -> str | None:
    """The system whose file it is; None: core's."""
    return path.relative_to(SYSTEMS).parts[0] if path.is_relative_to(SYSTEMS) else None


def test_core_includes_no_system_and_no_system_another() -> None:
    crossing = []
    for source in SOURCES:
        for name in re.findall(r'^#include "(.+)"', source.read_text(), re.M):
            included = (source.parent / name).resolve()
            if included.exists() and system_of(included) not in (None, system_of(source)):
                crossing.append(f"{source} includes {name}")
    assert crossing == []
    assert {path.suffix for path in SOURCES} == {".cc", ".h"}
