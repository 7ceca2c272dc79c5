"""The preloaded library, its variables, and the counts that it writes.

The library is built for the job's MPI at first use.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from dltune.base.errors import DltuneError
from dltune.native.build import BuildError
from dltune.native.build import library as built
from dltune.systems.ranks.allreduce.section import Sleeps

SOURCE = Path(__file__).with_name("preload.cc")
# no C++ runtime: it would be loaded into the launcher and every shell of the job
FLAGS = ("-fno-exceptions", "-fno-rtti", "-pthread", "-Wl,--as-needed", "-ldl")
# how long a background thread rests; the bootstrap takes it out of a rank's environment, and the
# rests out of the library, where they might harm
REST = "DLTUNE_REST"
SCOPE = (
    "This library is for Horovod over MPI, which spins while it waits; with gloo, which blocks, it "
    "is not needed"
)


def build(launcher: Path | None = None, on_build: Callable[[], None] | None = None) -> Path:
    """Return the library for the MPI of a job that is started with `launcher` (its mpirun), else
    for that of the mpicc on PATH; $MPICC goes before both. Built when it is not in the cache;
    `on_build` is called first.

    Raises DltuneError without that MPI's mpicc and mpi.h or a C++ compiler, or when it cannot be
    built.
    """
    flags = _compile_flags(_mpicc(launcher))
    try:
        return built("sleeps", [SOURCE], (*flags, *FLAGS), _header_digest(flags), on_build)
    except BuildError as error:
        raise DltuneError(
            f"cannot build the library for sleeping background threads: {error}",
            remedy="if it cannot be built here, plan again without non-blocking, global-sleep and "
            "rest (--methods)",
        ) from None


def variables(
    library: Path, sleeps: Sleeps | None, environment: Mapping[str, str], counts: Path | None = None
) -> dict[str, str]:
    """Return the variables to set for every rank, in addition to `environment`, whose LD_PRELOAD is
    kept.

    `counts`: the folder for the counts of each rank. Without `sleeps` Horovod is only counted.
    """
    preloaded = [str(library), *filter(None, environment.get("LD_PRELOAD", "").split(":"))]
    chosen = {"LD_PRELOAD": ":".join(dict.fromkeys(preloaded)), "DLTUNE_NODE": socket.gethostname()}
    if sleeps and sleeps.between_tests is not None:
        chosen["DLTUNE_NBCS"] = f"{sleeps.between_tests:.9f}"
    if sleeps and sleeps.agree_every is not None:
        chosen["DLTUNE_GS"] = str(sleeps.agree_every)
    if sleeps and sleeps.rest is not None:
        chosen[REST] = f"{sleeps.rest:.9f}"
    if counts:
        chosen["DLTUNE_SLEEPS"] = str(counts)
    return chosen


def _mpicc(launcher: Path | None) -> list[str]:
    if chosen := os.environ.get("MPICC"):
        return shlex.split(chosen)
    # not resolved: a link to mpirun is in the folder of the matching mpicc or of none
    beside = (launcher.parent, launcher.resolve().parent) if launcher else ()
    for folder in beside or (None,):  # None: PATH
        if mpicc := shutil.which("mpicc", path=folder):
            return [mpicc]
    missing = f"no mpicc next to {launcher}" if launcher else "no mpicc on PATH"
    raise DltuneError(
        f"{missing}: the library for sleeping background threads is built with the job's MPI",
        remedy=f"Install {'that ' if launcher else ''}MPI's development files, or set MPICC. "
        f"{SCOPE}.",
    )


def _compile_flags(mpicc: list[str]) -> list[str]:
    """Return the folders of its headers: Open MPI prints them for --showme:compile, MPICH and Intel
    for -show."""
    # a preloaded library must not reach the compiler
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    said = ""
    for question in ("--showme:compile", "-show"):
        try:
            asked = subprocess.run(
                [*mpicc, question], capture_output=True, text=True, timeout=60, env=environment
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise DltuneError(
                f"cannot run {shlex.join(mpicc)}: {error}", remedy="set MPICC to the MPI's compiler"
            ) from None
        if asked.returncode == 0:
            return [word for word in shlex.split(asked.stdout) if word.startswith(("-I", "-D"))]
        said = asked.stderr
    raise DltuneError(
        f"{shlex.join(mpicc)} does not print its compiler flags (--showme:compile, -show): "
        f"{said.strip()}",
        remedy="set MPICC to the MPI's compiler",
    )


def _header_digest(flags: list[str]) -> str:
    """Return the digest of mpi.h, which holds the MPI's version and all that a build depends on."""
    folders = [Path(flag[2:]) for flag in flags if flag.startswith("-I")]
    for folder in (*folders, Path("/usr/include")):
        if (header := folder / "mpi.h").is_file():
            return hashlib.sha256(header.read_bytes()).hexdigest()
    raise DltuneError(
        f"mpicc is there, but no mpi.h in {', '.join(map(str, folders)) or '/usr/include'}",
        remedy=f"Install MPI's development files, or set MPICC. {SCOPE}.",
    )


class Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Counts of one background thread from its first cache synchronisation to Horovod's shutdown.

    `seconds` between the two, `cpu` those on a core, `wait` those in the run queue (None when the
    kernel does not report it). `cycles` are cache synchronisations. `tests` of non-blocking
    collectives and of agreements, `sleeps` between them with `slept` seconds in all. Of
    `agreements` on the least sleep, `shortened` cut this thread's sleep short, by `saved` seconds
    in all.

    The library writes one file per background thread.
    """

    rank: int
    size: int
    pid: int
    tid: int
    seconds: float
    cpu: float
    wait: float | None
    cycles: int
    collectives: int
    tests: int
    sleeps: int
    slept: float
    agreements: int
    shortened: int
    saved: float
    rests: int
    rested: float


def read(folder: Path) -> list[Counts]:
    """All files in the folder of DLTUNE_SLEEPS, by rank. A rank that was killed left none.

    Raises msgspec.DecodeError when a file is not one of the library's.
    """
    files = folder.glob("sleeps-*.json")
    return sorted(
        (msgspec.json.decode(file.read_bytes(), type=Counts) for file in files),
        key=lambda counts: (counts.rank, counts.tid),
    )
