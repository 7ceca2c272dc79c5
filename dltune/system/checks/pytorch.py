"""The PyTorch that this Python would import, looked at without importing it."""

from __future__ import annotations

import math
import re
from pathlib import Path

from dltune.system.checks import Check, folder_of

NAME = "PyTorch"
OLDEST = (2, 6)
_OPENMP = re.compile(r"lib(g|i|)omp[\w.-]*\.so[\w.]*")


def pytorch(quota: float | None, cpus: int) -> Check:
    """Version, build and OpenMP runtime, and whether dltune can work with it. `quota`: CPUs that
    the control group pays for, of which PyTorch knows nothing; `cpus` that it may use."""
    folder = folder_of("torch")
    if folder is None:
        return Check(
            NAME,
            "ok",
            "not in this Python; dltune can still profile and run a job in another environment",
        )
    told = _told(folder / "version.py")
    version = told.get("__version__", "")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        return Check(
            NAME,
            "limited",
            f"{version or folder}; dltune needs {wanted} or newer",
            f"pip install 'torch>={wanted}'",
        )
    build = "GPU" if told.get("cuda") or told.get("hip") else "CPU"
    runtimes = sorted(
        file.name
        for place in (folder / "lib", folder.parent / "torch.libs")
        for file in place.glob("lib*omp*.so*")
        if _OPENMP.fullmatch(file.name)
    )
    what = f"{version}, {build} build, OpenMP: {' and '.join(runtimes) or 'system library'}"
    if quota is None or quota >= cpus:
        return Check(NAME, "ok", what)
    return Check(
        NAME,
        "limited",
        f"{what}; it ignores the quota of {quota:g} CPUs and starts {cpus} threads per op",
        f"set OMP_NUM_THREADS={max(1, math.ceil(quota))} for the job",
    )


def _told(file: Path) -> dict[str, str]:
    """The strings that `version.py` assigns."""
    try:
        text = file.read_text()
    except OSError:
        return {}
    return dict(re.findall(r"^(\w+)(?:: [^=]+)? = '([^']*)'", text, re.MULTILINE))
