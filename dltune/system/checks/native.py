"""The C++ compiler that builds the native parts, and the native plugin: built, to be built on first
use, or impossible."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dltune.native import build
from dltune.system.checks import Check

TIMEOUT = 60.0
NAME = "native plugin"


def compiler() -> Check:
    """The compiler's command and version. Required: nothing native can be built without."""
    try:
        command = build.compiler()
    except build.BuildError:
        return Check(
            "compiler",
            "missing",
            "no g++, c++ or clang++",
            "install g++ (Debian, Ubuntu: apt install g++), or set CXX",
            required=True,
        )
    try:
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, check=True, timeout=TIMEOUT
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Check(
            "compiler",
            "missing",
            f"{shlex.join(command)} cannot be run: {error}",
            "set CXX to a C++ compiler that works, or unset it",
            required=True,
        )
    version = (done.stdout or done.stderr).strip().splitlines()[0]
    return Check("compiler", "ok", f"{shlex.join(command)}: {version}", required=True)


def plugin(sources: Sequence[Path], flags: Sequence[str], salt: str) -> Check:
    """State of the plugin for the TensorFlow whose build arguments these are."""
    try:
        path = build.library_path("plugin", sources, flags, salt)
    except build.BuildError as error:
        return Check(NAME, "missing", str(error), "install g++, or set CXX", required=True)
    if path.is_file():
        return Check(NAME, "ok", f"built: {path}", required=True)
    existing = next(folder for folder in path.parents if folder.exists())
    try:  # permission bits do not tell; leaves nothing behind
        tempfile.TemporaryDirectory(dir=existing).cleanup()
    except OSError as error:
        return Check(
            NAME,
            "missing",
            f"cannot be built: the cache folder {path.parent} is not writable: {error.strerror}",
            "set DLTUNE_CACHE to a writable folder",
            required=True,
        )
    log = path.with_suffix(".log")
    if log.is_file():
        return Check(
            NAME,
            "missing",
            "the last build failed",
            f"read {log}; the next `dltune profile` or `dltune run` builds it again",
            required=True,
        )
    return Check(
        NAME,
        "ok",
        "not built yet; the first `dltune profile` or `dltune run` builds it",
        required=True,
    )


def impossible(reason: str) -> Check:
    """There is no TensorFlow here that can carry it; the job may bring its own."""
    return Check(NAME, "limited", reason, "run dltune doctor in the job's Python environment")
