"""The OpenMP runtime that PyTorch's ops run on."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from dltune.plan.settings.setting import Circumstances, Means, Setting
from dltune.system.memory import preloads

_INTELS = "libiomp5.so"
_RUNTIME = re.compile(r"lib[ig]?omp(\b|\d)")  # Intel's, GNU's, LLVM's
# Intel's runtime looks for 200 ms, GNU's 300,000 times: about 3 ms
_BRIEFLY = {"KMP_BLOCKTIME": "1", "GOMP_SPINCOUNT": "100000"}


def _prefixes(here: Circumstances) -> Iterator[Path]:
    """Of the environments that the job may run in, and of dltune's own."""
    program = here.command[0] if here.command else "python"
    if found := shutil.which(program, path=here.environment.get("PATH")):
        yield Path(found).parent.parent
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if prefix := here.environment.get(name):
            yield Path(prefix)
    yield Path(sys.prefix)


def _library(here: Circumstances) -> Path | None:
    paths = (prefix / "lib" / _INTELS for prefix in _prefixes(here))
    return next((path.resolve() for path in paths if path.is_file()), None)


def _runtimes(here: Circumstances) -> dict[str, Means]:
    library = _library(here)
    return {"intel": Means(preload=(library,))} if library else {}


def _without(here: Circumstances) -> str | None:
    if _library(here):
        return None
    return f"{_INTELS} is not installed: run `pip install intel-openmp` in the job's environment"


def _preloaded(here: Circumstances) -> str | None:
    if any(_RUNTIME.match(Path(library).name) for library in preloads(here.environment)):
        return f"LD_PRELOAD={here.environment['LD_PRELOAD']}"
    return None


OPENMP = Setting(
    name="openmp",
    order=80,
    what="Replace GNU's OpenMP runtime, which comes with PyTorch, with Intel's.",
    helps="Steps of many short ops, for which starting and joining threads takes long.",
    meanings={"intel": "load libiomp5.so (pip install intel-openmp)"},
    kind="rounding",
    source="PyTorch's performance tuning guide, Intel OpenMP runtime library",
    ways=_runtimes,
    unfit=_without,
    users=_preloaded,
    joins=("openmp_wait", "threads"),
    framework="pytorch",
)

OPENMP_WAIT = Setting(
    name="openmp_wait",
    order=90,
    what="Set how long OpenMP's threads wait for the next op before they sleep. The default is "
    "about 3 ms in GNU's runtime and 200 ms in Intel's.",
    helps="Jobs that share their cores with data workers, other ranks or other programs.",
    meanings={"1ms": "sleep after about a millisecond", "passive": "sleep at once"},
    kind="exact",
    source="the OpenMP specification, OMP_WAIT_POLICY; GNU libgomp's manual, GOMP_SPINCOUNT; "
    "PyTorch's performance tuning guide, KMP_BLOCKTIME",
    # and not "active": a job that stands while others have their turn would take a core from them
    ways=lambda _: {
        "1ms": Means(environment=_BRIEFLY),
        "passive": Means(environment={"OMP_WAIT_POLICY": "PASSIVE"}),
    },
    joins=("threads", "openmp"),
    framework="pytorch",
)
