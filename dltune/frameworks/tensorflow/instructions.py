"""Which of the machine's instructions a TensorFlow was compiled without, as it tells itself.

TensorFlow's own kernels (Eigen) have the instructions that its build was given; the wheels on PyPI
have AVX. A build knows which, and tells once at its first op, if its log is not turned down: "To
enable the following instructions: AVX2 FMA, in other operations, rebuild" (cpu_feature_guard.cc;
operations by oneDNN are others: oneDNN makes code for the CPU that is there). It is asked here, in
a process of its own, without an import: a twentieth of a second.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from dltune.system.proc import process

_LIBRARY = "libtensorflow_framework.so"
_ASK = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library._ZN10tensorflow4port26InfoAboutUnusedCPUFeaturesEv()
"""
_TOLD = re.compile(r"enable the following instructions: ([\w. ]+),")
_SECONDS = 30.0


def lacking(library: Path) -> tuple[str, ...] | None:
    """Those that the CPU here has and the build lacks, as TensorFlow calls them ("AVX512F", "FMA").

    `library`: its libtensorflow_framework.so.2. None when it cannot be asked: a TensorFlow without
    this function, or one for another system.
    """
    command = [sys.executable, "-c", _ASK, str(library)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            env={"TF_CPP_MIN_LOG_LEVEL": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    told = _TOLD.search(done.stderr)
    return tuple(told[1].split()) if told else ()


def lacking_in(pid: int) -> tuple[str, ...] | None:
    """As `lacking`, of the TensorFlow that a process has loaded; None when it has loaded none, or
    its libraries may not be seen."""
    try:
        paths = {mapping.path for mapping in process.mappings(pid)}
    except OSError:
        return None
    library = next((path for path in sorted(paths) if Path(path).name.startswith(_LIBRARY)), None)
    return lacking(Path(f"/proc/{pid}/root{library}")) if library else None
