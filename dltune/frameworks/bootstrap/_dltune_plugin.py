"""How the native library of a framework's plugin is built.

Only the standard library is used: this runs in the job's own Python as well as in dltune's.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

_PACKAGE = Path(__file__).resolve().parents[2]
_NATIVE = _PACKAGE / "native"


def sources(plugin: Path) -> list[Path]:
    """Return the sources of the plugin in the folder `plugin`, of the core below it, and of the
    systems: `systems/NAME/plugin`, with a folder for each framework. The files that take longest to
    compile, because they include the framework, come first."""
    systems, framework = _PACKAGE / "systems", plugin.parent.name
    return [
        *sorted(plugin.glob("*.cc")),
        *sorted(systems.glob(f"*/plugin/{framework}/*.cc")),
        *sorted((_NATIVE / "core").glob("*.cc")),
        *sorted(systems.glob("*/plugin/*.cc")),
        *sorted(_NATIVE.glob("*.h")),
    ]


def build_module() -> ModuleType:
    """Return dltune/native/build.py, loaded by its path."""
    spec = importlib.util.spec_from_file_location("_dltune_build", _NATIVE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def library(
    name: str,
    plugin: Path,
    flags: Sequence[str],
    salt: str,
    on_build: Callable[[], object] | None = None,
) -> Path:
    """Return the built plugin; build it if it is not in the cache. Raises build.BuildError."""
    path: Path = build_module().library(name, sources(plugin), flags, salt, on_build)
    return path
