"""Public complaints rebuilt as small jobs: symptoms.toml has them, with their sources and cures."""

from __future__ import annotations

import os
import sys
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
TORCH = Path(
    os.environ.get("DLTUNE_TEST_TORCH_PYTHON", FOLDER.parent.parent / ".venv-torch" / "bin/python")
)
BESIDE = ("clock.py", "model.py", "torch_model.py", "workers.py")  # what the jobs import


@dataclass(frozen=True)
class Setting:
    """A job and what it is started in."""

    job: Path
    python: str = sys.executable
    launcher: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    quota: float | None = None  # cores
    cores: str | None = None  # a list as cpuset reads it
    memory: int | None = None  # bytes
    beside: int = 0
    data: str | None = None
    edit: tuple[str, str] | None = None  # what stands in the job, and what instead

    def text(self) -> str:
        """The job's source. Raises ValueError unless the line to be replaced stands in it once."""
        text = self.job.read_text()
        if self.edit is None:
            return text
        old, new = self.edit
        if text.count(old) != 1:
            raise ValueError(f"{self.job.name} has {old!r} {text.count(old)} times")
        return text.replace(old, new)

    def written(self, folder: Path) -> Path:
        """The job's script, in the folder where it has been edited."""
        if self.edit is None:
            return self.job
        for name in BESIDE:
            (folder / name).write_text((FOLDER / name).read_text())
        path = folder / self.job.name
        path.write_text(self.text())
        return path


@dataclass(frozen=True)
class Symptom:
    name: str
    cause: str
    source: str
    said: str
    here: str
    complaint: Setting
    fixed: Setting
    by: str  # plan, line or machine
    cure: str


def _setting(told: dict[str, Any]) -> dict[str, Any]:
    names = ("environment", "quota", "cores", "memory", "beside", "data")
    setting = {name: told[name] for name in names if name in told}
    if "launcher" in told:
        setting["launcher"] = tuple(told["launcher"])
    if "line" in told:
        setting["edit"] = told["line"], told["with"]
    return setting


def _symptom(told: dict[str, Any]) -> Symptom:
    job = FOLDER / told.get("job", told["name"] + ".py")
    python = str(TORCH) if told.get("framework") == "pytorch" else sys.executable
    complaint, fix = Setting(job, python, **_setting(told)), told["fix"]
    fixed = replace(complaint, **_setting(fix))
    texts = (told[name] for name in ("name", "cause", "source", "said", "here"))
    return Symptom(*texts, complaint, fixed, fix["by"], fix["cure"])


def _registry() -> dict[str, Any]:
    return tomllib.loads((FOLDER / "symptoms.toml").read_text())


def symptoms() -> dict[str, Symptom]:
    """By name."""
    return {told["name"]: _symptom(told) for told in _registry()["symptom"]}


def healthy() -> list[list[str]]:
    """Commands of jobs in which nothing is to be found; a path is one in the repository."""
    root = FOLDER.parent.parent
    jobs = (told.split() for told in _registry()["healthy"]["jobs"])
    return [[sys.executable, str(root / path), *arguments] for path, *arguments in jobs]


def true_of(name: str) -> list[str]:
    """Causes that are true of a healthy job, by the name of its script."""
    causes: dict[str, list[str]] = _registry()["healthy"]["known"]
    return causes.get(name, [])
