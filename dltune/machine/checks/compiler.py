"""The C++ compiler that builds the native parts."""

from __future__ import annotations

import shlex
import subprocess

from dltune.machine.checks import Check
from dltune.native import build

TIMEOUT = 60.0


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
