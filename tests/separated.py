"""Copies of the tree without some of dltune's systems."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDERS = ("dltune", "tests", "docs", "scripts", ".ci")
FILES = ("pyproject.toml", "ruff.toml", "README.md", "CHANGELOG.md", "LICENSE", "Makefile")


def copied(folder: Path, without: Iterable[str]) -> Path:
    """Copy the tree into `folder`, without the code and the tests of these systems."""
    for name in FOLDERS:
        if (ROOT / name).exists():
            # other tests' Pythons rename what they compile while this copies
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
            )
    for name in FILES:
        shutil.copy2(ROOT / name, folder)
    for system in without:
        shutil.rmtree(folder / "dltune" / "systems" / system)
        shutil.rmtree(folder / "tests" / "systems" / system)
    return folder


def python(folder: Path, *arguments: object, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run Python in a copy, where `import dltune` imports the copy."""
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def imported() -> dict[str, str]:
    """Import all modules, and build and load all native parts; return the errors by module. A
    module of which another package is missing is left out."""
    import dltune

    failed: dict[str, str] = {}
    for info in pkgutil.walk_packages(dltune.__path__, "dltune."):
        if info.name.endswith("__main__"):
            continue
        try:
            with warnings.catch_warnings(action="ignore"):
                module = importlib.import_module(info.name)
            if info.name.endswith("_binding"):
                module.load()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "dltune":
                failed[info.name] = str(error)
        except Exception as error:
            failed[info.name] = f"{type(error).__name__}: {error}"
    return failed


def foreign() -> list[str]:
    """Return the modules of dltune that were imported from another tree."""
    import dltune

    folder = str(Path(dltune.__file__).parent)
    found = {
        name: str(getattr(module, "__file__", None) or folder)
        for name, module in sys.modules.items()
        if name.partition(".")[0] == "dltune"
    }
    return [name for name, file in found.items() if not file.startswith(folder)]


def main(commands: Sequence[str]) -> dict[str, Any]:
    """Return what a test wants to know of a copy: it runs in the copy's Python."""
    import dltune

    with contextlib.redirect_stdout(sys.stderr):
        failed = imported()
        from transcripts import HERE, rerun

        ran = {command: rerun(command, HERE / "documents") for command in commands}
    return {
        "package": str(Path(dltune.__file__).parent),
        "failed": failed,
        "foreign": foreign(),
        "ran": ran,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
