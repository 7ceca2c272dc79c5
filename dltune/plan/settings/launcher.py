"""A job's command as a launcher of ranks, and their number.

A command can hold placeholders: `{ranks:4}` is the number of ranks that it starts, and
`{batch:256}` the examples of a step over all ranks, for each of which its part stands in the
command. The numbers are those of the job as it is; with others the job trains on as many examples a
step."""

from __future__ import annotations

import functools
import itertools
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.job.rank_layout import TORCHRUN

_PLACE = re.compile(r"\{(ranks|batch):(\d+)\}")
_ACCELERATE = "accelerate.commands.launch"  # after `python -m`
_SPOILT = re.compile(r"\{(?:ranks|batch)\b[^{}]*\}")
_REMEDY = (
    "write the job's own numbers, for example: horovodrun -np {ranks:4} python train.py {batch:256}"
)


def ranks(command: Sequence[str]) -> int | None:
    """Return the number in `{ranks:N}`; None without one. Raises UsageError for placeholders that
    make no sense, or contradict each other."""
    numbers = set(_numbers(command, "ranks"))
    for word in command:
        for found in _SPOILT.findall(word):
            if not _PLACE.fullmatch(found):
                raise UsageError(f"{found} in the job's command has no number", remedy=_REMEDY)
    if not numbers:
        if any(_numbers(command, "batch")):
            raise UsageError("{batch:N} needs {ranks:N} in the job's command", remedy=_REMEDY)
        return None
    if len(numbers) > 1 or 0 in numbers:
        told = ", ".join(map(str, sorted(numbers)))
        raise UsageError(
            f"{{ranks:N}} in the job's command must be one number above 0, got {told}",
            remedy=_REMEDY,
        )
    number = numbers.pop()
    if not divides(command, number):
        raise UsageError(
            f"a {{batch:N}} in the job's command is not a multiple of its {number} ranks",
            remedy="set N to the number of examples in a step over all ranks",
        )
    return number


def divides(command: Sequence[str], number: int) -> bool:
    """Return True if `number` ranks can divide each `{batch:N}` equally."""
    return all(size and size % number == 0 for size in _numbers(command, "batch"))


def filled(command: Sequence[str], number: int | None = None) -> tuple[str, ...]:
    """Return the command to start, for `number` ranks (None: its own). Raises UsageError as
    `ranks`."""
    chosen = number or ranks(command)
    if chosen is None:
        return tuple(command)

    def fill(found: re.Match[str]) -> str:
        return str(chosen if found[1] == "ranks" else int(found[2]) // chosen)

    return tuple(_PLACE.sub(fill, word) for word in command)


def horovodrun(command: Sequence[str]) -> bool:
    return bool(command) and Path(command[0]).name.startswith("horovodrun")


def starts_ranks(command: Sequence[str]) -> bool:
    """Return True if the command is a launcher of ranks that dltune knows."""
    return (
        horovodrun(command) or _mpirun(command) or _of_pytorch(command) or _named(command, "srun")
    )


def open_mpi(command: Sequence[str]) -> bool:
    """Return True if Open MPI starts the ranks, as far as the command shows."""
    if horovodrun(command):
        found = None if "--gloo" in command else shutil.which("mpirun")
    else:
        found = shutil.which(command[0]) if _mpirun(command) else None
    return found is not None and "Open MPI" in _version(found)


def _mpirun(command: Sequence[str]) -> bool:
    return _named(command, "mpirun", "mpiexec", "orterun")


def _of_pytorch(command: Sequence[str]) -> bool:
    """Return True if it is torchrun, or accelerate with several processes, by name or as a
    module."""
    module = command[command.index("-m") + 1] if "-m" in command[:-1] else ""
    if _named(command, "torchrun") or (module in TORCHRUN and _python(command)):
        return True
    if _named(command, "accelerate") or (module == _ACCELERATE and _python(command)):
        own = itertools.takewhile(lambda word: not word.endswith(".py"), command)
        return any(_several(word, after) for word, after in itertools.pairwise([*own, ""]))
    return False


def _several(word: str, after: str) -> bool:
    name, _, value = word.partition("=")
    if name.replace("_", "-") == "--num-processes":
        return (value or after) not in ("0", "1")
    return name in ("--multi_gpu", "--mpirun_hostfile")


def _python(command: Sequence[str]) -> bool:
    return Path(command[0]).name.startswith("python")


def _named(command: Sequence[str], *names: str) -> bool:
    return bool(command) and Path(command[0]).name in names


@functools.lru_cache
def _version(mpirun: str) -> str:
    try:
        asked = subprocess.run(
            [mpirun, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout


def _numbers(command: Sequence[str], kind: str) -> Iterator[int]:
    for word in command:
        for name, number in _PLACE.findall(word):
            if name == kind:
                yield int(number)
