"""The TensorFlow that this Python would import, looked at without importing it."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from dltune.system.checks import Check, folder_of

OLDEST = (2, 16)
DISTRIBUTIONS = (
    "tensorflow",
    "tensorflow-cpu",
    "intel-tensorflow",
    "tensorflow-cpu-aws",
    "tf-nightly",
    "tf-nightly-cpu",
    "tensorflow-rocm",
)


@dataclass(frozen=True)
class Installed:
    """`folder`: the package's. `version` is "" where no installed distribution tells it.
    `gpu`: built for a GPU."""

    folder: Path
    version: str
    gpu: bool


def installed() -> Installed | None:
    """The TensorFlow of this Python; None when there is none."""
    folder = folder_of("tensorflow")
    if folder is None:
        return None
    version = ""
    for name in DISTRIBUTIONS:
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        # more than one may be installed; the one whose files are there
        if Path(str(distribution.locate_file("tensorflow"))).resolve() == folder.resolve():
            version = distribution.version
            break
    try:
        build = (folder / "python/platform/build_info.py").read_text()
    except OSError:
        build = ""
    gpu = bool(re.search(r"is_(cuda|rocm)_build'?\"?[,:]\s*True", build))
    return Installed(folder, version, gpu)


def tensorflow(found: Installed | None) -> Check:
    """Version and build, and whether dltune can work with it."""
    python = f"Python {platform.python_version()} ({sys.executable})"
    if found is None:
        return Check(
            "TensorFlow",
            "limited",
            f"not in {python}; dltune can still profile and run a job in another environment",
            "if the job uses this Python: pip install 'dltune[tensorflow]'",
        )
    if not found.version:
        return Check(
            "TensorFlow",
            "limited",
            f"{found.folder} in {python}, unknown version: no installed package owns this folder",
            "install TensorFlow from a wheel",
        )
    what = f"{found.version}, {'GPU' if found.gpu else 'CPU'} build, in {python}"
    numbers = re.match(r"(\d+)\.(\d+)", found.version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST:
        return Check(
            "TensorFlow",
            "limited",
            f"{what}: too old, dltune needs {OLDEST[0]}.{OLDEST[1]} or newer",
            f"pip install 'tensorflow-cpu>={OLDEST[0]}.{OLDEST[1]}'",
        )
    if found.gpu:
        what += "; dltune cannot control steps that run on a GPU"
    return Check("TensorFlow", "ok", what)
