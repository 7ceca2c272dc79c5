"""Processes that are started in any Python: their PYTHONPATH, and the last lines of their output.

Standard library only: ranks and measurements in a job's own Python import this.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

OF_DLTUNE = Path(__file__).resolve().parents[2]  # the same one, however this process came to it


def python_path(*first: Path | str, environment: Mapping[str, str] = os.environ) -> str:
    """Return a PYTHONPATH for a command: these folders of dltune's, then the folders that the user
    has in `environment`."""
    inherited = environment.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([*map(str, first), *filter(None, inherited)])


LINES = 15
# of the log that are looked at
_BYTES = 1 << 16
# of a rank that has lost another, through Horovod, gloo or MPI
_LOST = re.compile(
    r"Horovod has been shut down|HorovodInternalError|Gloo \w+ failed|[Cc]onnection closed by peer"
    r"|[Cc]onnection reset by peer|Broken pipe|MPI_ERR"
)


# torchrun of its ranks, and then in two or three dozen lines of the one that failed
_TORCHRUN = re.compile(r"torch/distributed/elastic/\S+\.py:\d+\]")
_FAILED = re.compile(rf"{_TORCHRUN.pattern} failed \(exitcode")


def last_lines(log: Path) -> list[str]:
    """The last that a job wrote; of torchrun's, before that told which rank has failed."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - _BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    told = [at for at, line in enumerate(lines) if _FAILED.search(line)]
    ranks = [line for line in lines[: told[-1]] if not _TORCHRUN.search(line)] if told else lines
    return ranks[-LINES:]


def last_words(log: Path, job: str = "the job") -> str:
    """The same for a person; empty when it wrote nothing."""
    lines = last_lines(log)
    return "\n  ".join([f"the last lines of {job}:", *lines]) if lines else ""


def tells_of_another(error: str) -> bool:
    """Whether an exception of a rank only says that another rank is gone."""
    return _LOST.search(error) is not None
