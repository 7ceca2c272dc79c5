"""Setting around the ops, and the job's command as a launcher of ranks.

`Setting` is one declarative entry of the space that `tune` searches; `Means` are the changes that
a value makes to an unmodified job. One of these changes is the number of ranks, which the command
holds as a placeholder (`ranks`, `filled`).
"""

from __future__ import annotations

import functools
import itertools
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.job.rank_layout import TORCHRUN
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Uniform
from dltune.schemas.settings import Kind


@dataclass(frozen=True)
class Circumstances:
    """Facts that decide which settings fit: the machine, the job's command and its environment."""

    machine: Machine
    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Means:
    """Changes to an unmodified job.

    `environment`: variables that are set. `joined`: parts ("NAME=VALUE" or a flag) that are added
    to the user's parts of a list-like variable (`GLIBC_TUNABLES`, `TF_XLA_FLAGS`). `preload`:
    libraries that come before all others. `uniform`: TensorFlow's own thread pools. `cpus`: CPUs
    that the job is confined to. `shared`: each rank is confined to its part of the node's cores.
    `ranks`: number that the launcher starts (`filled`); `flags`: its first arguments.
    `hooks`: values of the bootstrap's hooks in the job's Python, by name (`extensions.Hook`).
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    preload: tuple[Path, ...] = ()
    uniform: Uniform | None = None
    cpus: tuple[int, ...] | None = None
    shared: bool = False
    ranks: int | None = None
    flags: tuple[str, ...] = ()
    hooks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One thing to set around the ops: a declarative entry of the space that `tune` searches.

    - `name`: the name in a plan and on the command line.
    - `order`: its place in a search; settings with a likely gain have low numbers.
    - `what`: the change that it makes, a sentence; `helps`: the jobs that profit, a sentence.
    - `meanings`: the effect of each value, by value; a letter in the key stands for a number.
    - `kind`: possible changes of the job's results; `source`: the reference.
    - `ways`: the means for each value here, likeliest gain first.
    - `offers` and `reads`, in place of `ways` where values are not listed: the values that are
      worth trying, and the means for any value (raises as `means`).
    - `unfit`: the reason why no value can be tried here (None: a value can).
    - `joins`: names of settings that interact with it, so that they are tried together;
      `joined_by`: names of settings that are to have it in their `joins`.
    - `users`: how the user has set it, beyond the variables of its means (None: not set).
    - `default`: the value in force when nobody sets it, where that is one of the values.
    - `untried`: values that are not available here, and why.
    - `changes_graph`: the job's step can have another graph with it, which does not match plans
      for single ops.
    - `framework`: the only framework that has it (None: any); `framework_of`: the same for a value.
    """

    name: str
    what: str
    helps: str
    meanings: Mapping[str, str]
    kind: Kind
    source: str
    ways: Callable[[Circumstances], Mapping[str, Means]] = lambda _: {}
    offers: Callable[[Circumstances], Iterable[str]] | None = None
    reads: Callable[[str, Circumstances], Means] | None = None
    unfit: Callable[[Circumstances], str | None] = lambda _: None
    joins: tuple[str, ...] = ()
    joined_by: tuple[str, ...] = ()
    users: Callable[[Circumstances], str | None] = lambda _: None
    default: Callable[[Circumstances], str | None] = lambda _: None
    untried: Callable[[Circumstances], Mapping[str, str]] = lambda _: {}
    changes_graph: bool = False
    framework: str | None = None
    framework_of: Callable[[str], str | None] = lambda _: None
    order: int = 1000

    def values(self, here: Circumstances) -> tuple[str, ...]:
        """Return the values worth trying here, other than no change, likeliest gain first."""
        return tuple(self.offers(here) if self.offers else self.ways(here))

    def means(self, value: str, here: Circumstances) -> Means:
        """Return the means of a value. Raises UsageError if it does not exist, or not here."""
        if self.reads:
            return self.reads(value, here)
        ways = self.ways(here)
        if value in ways:
            return ways[value]
        if not ways and (why := self.unfit(here)):
            raise UsageError(f"{self.name}={value} cannot be used here: {why}", remedy=None)
        raise UsageError(f"{self.name}={value}: unknown value", remedy=f"use {' or '.join(ways)}")


# A job's command as a launcher of ranks, and their number. A command can hold placeholders:
# `{ranks:4}` is the number of ranks that it starts, and `{batch:256}` the number of examples in a
# step over all ranks; the started command has one rank's part in its place. The numbers are those
# of the job as it is. With another number of ranks, the job trains on as many examples per step.

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
