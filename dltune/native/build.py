"""Build a shared library from C++ sources with the system's compiler, once, and cache it.

Only the standard library is used and nothing of dltune is imported: the bootstrap loads this file
by its path inside the job's own Python, which may be another environment than dltune's.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

COMMON_FLAGS = ("-O2", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-DNDEBUG")
LOG_LINES = 15
# each takes up to 0.8 GB with the headers of TensorFlow
UNITS_AT_ONCE = 4


class BuildError(Exception):
    """The library could not be built; the message tells why, shows the compiler's last lines and
    names the log."""


def cache_folder() -> Path:
    """Where built libraries are kept: $DLTUNE_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("DLTUNE_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(base) / "dltune"


def compiler() -> list[str]:
    """The C++ compiler's command: $CXX, else the first of c++, g++, clang++ that exists.

    Raises BuildError when there is none.
    """
    if chosen := os.environ.get("CXX"):
        return shlex.split(chosen)
    for name in ("g++", "c++", "clang++"):
        if found := shutil.which(name):
            return [found]
    raise BuildError("no C++ compiler found (g++, c++ or clang++); install one, or set CXX")


def library_path(name: str, sources: Sequence[Path], flags: Sequence[str], salt: str = "") -> Path:
    """Where the library for exactly these sources, headers beside them, flags and compiler is kept.

    `salt`: whatever else it depends on, such as a framework's build.
    """
    command = compiler()
    digest = hashlib.sha256()
    for source in sorted(set(sources) | {h for s in sources for h in s.parent.glob("*.h")}):
        digest.update(source.read_bytes())
    try:
        version = subprocess.run(
            [*command, "--version"], capture_output=True, check=True, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"the C++ compiler {shlex.join(command)} cannot be run: {error}") from None
    digest.update(version)
    digest.update("\0".join((*COMMON_FLAGS, *flags, salt)).encode())
    return cache_folder() / f"{name}-{digest.hexdigest()[:16]}.so"


def library(
    name: str,
    sources: Sequence[Path],
    flags: Sequence[str] = (),
    salt: str = "",
    on_build: Callable[[], None] | None = None,
) -> Path:
    """The built library's path; builds it when it is not in the cache, which `on_build` is told of.

    Processes that ask at the same time build it once. Raises BuildError.
    """
    path = library_path(name, sources, flags, salt)
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                if on_build:
                    on_build()
                _compile(path, sources, flags)
    except OSError as error:
        raise BuildError(
            f"cannot write to the cache folder {path.parent}: {error.strerror}; set DLTUNE_CACHE "
            "to a writable folder"
        ) from None
    return path


def _compile(path: Path, sources: Sequence[Path], flags: Sequence[str]) -> None:
    """Under the lock: what is there of another build was left when that was killed."""
    from concurrent.futures import ThreadPoolExecutor  # most jobs find the library built

    for left in path.parent.glob(f"{path.stem}.*.building"):
        shutil.rmtree(left, ignore_errors=True)
    command = [*compiler(), *COMMON_FLAGS]
    units = [source for source in sources if source.suffix != ".h"]
    pool = ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), UNITS_AT_ONCE))
    with tempfile.TemporaryDirectory(".building", f"{path.stem}.", path.parent) as folder:
        objects = [f"{folder}/{at}.o" for at in range(len(units))]
        compiling = [
            [*command, "-c", "-o", made, str(unit), *flags]
            for made, unit in zip(objects, units, strict=True)
        ]
        try:
            for one, done in zip(compiling, pool.map(_run, compiling), strict=True):
                _check(path, one, done)
        finally:
            pool.shutdown(cancel_futures=True)
        unfinished = f"{folder}/{path.name}"
        linking = [*command, "-o", unfinished, *objects, *flags]
        _check(path, linking, _run(linking))
        Path(unfinished).replace(path)


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    # a preloaded library or the job's own paths must not reach the compiler
    environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH")}
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=environment
    )


def _check(path: Path, command: Sequence[str], done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode == 0:
        return
    log = path.with_suffix(".log")
    log.write_text(f"{shlex.join(command)}\n\n{done.stdout}{done.stderr}")
    last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-LOG_LINES:])
    raise BuildError(
        f"{Path(command[0]).name} failed with exit code {done.returncode} while building "
        f"{path.stem}; its last lines:\n{last}\nthe whole log: {log}"
    )
