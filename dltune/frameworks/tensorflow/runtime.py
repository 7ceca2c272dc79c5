"""TensorFlow's runtime: orders for it in this process, missing instructions, thread settings."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.frameworks.bootstrap import _dltune_plugin
from dltune.frameworks.tensorflow.inject import _dltune_tensorflow
from dltune.job.protocol import encoded
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Uniform
from dltune.schemas.profile import Settings
from dltune.system.proc import process

# Orders for TensorFlow in this process, without a dltune outside it

_plugin: ctypes.CDLL | None = None  # keeps the library loaded


def obey(lines: Sequence[str]) -> None:
    """Imports TensorFlow and loads the plugin under these orders.

    Raises UsageError when TensorFlow has made its devices already, or the plugin does not work.
    """
    global _plugin
    import tensorflow as tf
    from tensorflow.python.eager import context

    if context.context()._context_handle is not None:
        raise UsageError(
            "TensorFlow has already created its devices, so the plan would have no effect",
            remedy="call dltune.apply before TensorFlow's first op",
        )
    try:
        flags, salt = _dltune_tensorflow.arguments(Path(tf.__file__).parent)
        built = _dltune_plugin.library("plugin", _dltune_tensorflow.PLUGIN, flags, salt)
        library = ctypes.CDLL(str(built))
    except Exception as error:
        raise UsageError(
            f"dltune's plugin does not work with this TensorFlow: {error}",
            remedy="run `dltune doctor` in this Python environment",
        ) from None
    library.dltune_obey.restype = ctypes.c_char_p
    for line in lines:
        complaint = library.dltune_obey(encoded([line]).rstrip(b"\n"))
        if complaint:
            raise UsageError(
                f"dltune's plugin refused the plan: {complaint.decode('latin-1')}",
                remedy="create the plan again with this version of dltune",
            )
    _plugin = library


# Instructions of the machine that a TensorFlow was compiled without

_LIBRARY = "libtensorflow_framework.so"
_ASK = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library._ZN10tensorflow4port26InfoAboutUnusedCPUFeaturesEv()
"""
_TOLD = re.compile(r"enable the following instructions: ([\w. ]+),")
_SECONDS = 30.0


def lacking(library: Path) -> tuple[str, ...] | None:
    """Return the instructions that the CPU here has and the build lacks, as TensorFlow calls them
    ("AVX512F", "FMA").

    TensorFlow's own kernels (Eigen) have the instructions that its build was given; the wheels on
    PyPI have AVX. A build has a list of the missing ones, and logs it once at its first op, if its
    log is not turned down: "To enable the following instructions: AVX2 FMA, in other operations,
    rebuild" (cpu_feature_guard.cc; operations by oneDNN are others: oneDNN makes code for the CPU
    that is there). This function makes the library log the list in a process of its own, without an
    import: a twentieth of a second.

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


# Settings of TensorFlow itself: one intra-op and one inter-op thread count for all ops


def default_threads(machine: Machine) -> Uniform:
    """TensorFlow 2.x without settings: as many of both as the process may use CPUs."""
    cpus = sum(len(core.cpus) for core in machine.cores)
    return Uniform(cpus, cpus)


def recommended_threads(machine: Machine) -> Uniform:
    """TensorFlow's performance guide: intra the physical cores, inter the sockets."""
    return Uniform(len(machine.cores), machine.sockets)


def own_threads(settings: Settings, machine: Machine) -> Uniform:
    """The job's, on no more threads than there are cores."""
    cores = len(machine.cores)
    return Uniform(min(settings.intra, cores), min(settings.inter, cores))


def thread_grid(machine: Machine, intra: int | None = None) -> list[Uniform]:
    """What a person would try ("manual optimisation", section IV): powers of two and the core
    counts of a tile, a socket and the machine, for intra and for inter. `intra`: that one only.
    """
    cores = len(machine.cores)
    powers = (1 << k for k in range(cores.bit_length()))
    steps = sorted({*powers, cores, max(1, cores // machine.sockets), max(map(len, machine.tiles))})
    return [Uniform(a, b) for a in ([intra] if intra else steps) for b in steps]
