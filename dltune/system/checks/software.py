"""Checks of the software: TensorFlow, PyTorch, the C++ compiler, the native plugin and py-spy.

TensorFlow and PyTorch are those that this Python would import; the checks do not import them.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dltune.native import build
from dltune.system.checks import Check, folder_of
from dltune.system.kernel_files import text

# TensorFlow

OLDEST_TENSORFLOW = (2, 16)
DISTRIBUTIONS = (
    "tensorflow",
    "tensorflow-cpu",
    "intel-tensorflow",
    "tensorflow-cpu-aws",
    "tf-nightly",
    "tf-nightly-cpu",
    "tensorflow-rocm",
)


@dataclass(frozen=True)
class Installed:
    """`folder`: the package's. `version` is "" where no installed distribution tells it.
    `gpu`: built for a GPU."""

    folder: Path
    version: str
    gpu: bool


def installed_tensorflow() -> Installed | None:
    """The TensorFlow of this Python; None when there is none."""
    folder = folder_of("tensorflow")
    if folder is None:
        return None
    import importlib.metadata  # it takes longer to import than all else here

    version = ""
    for name in DISTRIBUTIONS:
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        # more than one may be installed; the one whose files are there
        if Path(str(distribution.locate_file("tensorflow"))).resolve() == folder.resolve():
            version = distribution.version
            break
    try:
        build = (folder / "python/platform/build_info.py").read_text()
    except OSError:
        build = ""
    gpu = bool(re.search(r"is_(cuda|rocm)_build'?\"?[,:]\s*True", build))
    return Installed(folder, version, gpu)


def tensorflow(found: Installed | None) -> Check:
    """Version and build, and whether dltune can work with it."""
    python = f"Python {platform.python_version()} ({sys.executable})"
    if found is None:
        return Check(
            "TensorFlow",
            "limited",
            f"not in {python}; dltune can still profile and run a job in another environment",
            "if the job uses this Python: pip install 'dltune[tensorflow]'",
        )
    if not found.version:
        return Check(
            "TensorFlow",
            "limited",
            f"{found.folder} in {python}, unknown version: no installed package owns this folder",
            "install TensorFlow from a wheel",
        )
    what = f"{found.version}, {'GPU' if found.gpu else 'CPU'} build, in {python}"
    numbers = re.match(r"(\d+)\.(\d+)", found.version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST_TENSORFLOW:
        return Check(
            "TensorFlow",
            "limited",
            f"{what}: too old, dltune needs {OLDEST_TENSORFLOW[0]}.{OLDEST_TENSORFLOW[1]} or newer",
            f"pip install 'tensorflow-cpu>={OLDEST_TENSORFLOW[0]}.{OLDEST_TENSORFLOW[1]}'",
        )
    if found.gpu:
        what += "; dltune cannot control steps that run on a GPU"
    return Check("TensorFlow", "ok", what)


# PyTorch

PYTORCH = "PyTorch"
OLDEST_PYTORCH = (2, 6)
_OPENMP = re.compile(r"lib(g|i|)omp[\w.-]*\.so[\w.]*")


def pytorch(quota: float | None, cpus: int) -> Check:
    """Version, build and OpenMP runtime, and whether dltune can work with it. `quota`: CPUs that
    the control group pays for, of which PyTorch knows nothing; `cpus` that it may use."""
    folder = folder_of("torch")
    if folder is None:
        return Check(
            PYTORCH,
            "ok",
            "not in this Python; dltune can still profile and run a job in another environment",
        )
    told = _told(folder / "version.py")
    version = told.get("__version__", "")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST_PYTORCH:
        wanted = ".".join(map(str, OLDEST_PYTORCH))
        return Check(
            PYTORCH,
            "limited",
            f"{version or folder}; dltune needs {wanted} or newer",
            f"pip install 'torch>={wanted}'",
        )
    build = "GPU" if told.get("cuda") or told.get("hip") else "CPU"
    runtimes = sorted(
        file.name
        for place in (folder / "lib", folder.parent / "torch.libs")
        for file in place.glob("lib*omp*.so*")
        if _OPENMP.fullmatch(file.name)
    )
    what = f"{version}, {build} build, OpenMP: {' and '.join(runtimes) or 'system library'}"
    if quota is None or quota >= cpus:
        return Check(PYTORCH, "ok", what)
    return Check(
        PYTORCH,
        "limited",
        f"{what}; it ignores the quota of {quota:g} CPUs and starts {cpus} threads per op",
        f"set OMP_NUM_THREADS={max(1, math.ceil(quota))} for the job",
    )


def _told(file: Path) -> dict[str, str]:
    """The strings that `version.py` assigns."""
    try:
        text = file.read_text()
    except OSError:
        return {}
    return dict(re.findall(r"^(\w+)(?:: [^=]+)? = '([^']*)'", text, re.MULTILINE))


# The C++ compiler that builds the native parts, and the native plugin: built, to be built on first
# use, or impossible

TIMEOUT = 60.0
PLUGIN = "native plugin"


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
        return Check(PLUGIN, "missing", str(error), "install g++, or set CXX", required=True)
    if path.is_file():
        return Check(PLUGIN, "ok", f"built: {path}", required=True)
    existing = next(folder for folder in path.parents if folder.exists())
    try:  # permission bits do not tell; leaves nothing behind
        tempfile.TemporaryDirectory(dir=existing).cleanup()
    except OSError as error:
        return Check(
            PLUGIN,
            "missing",
            f"cannot be built: the cache folder {path.parent} is not writable: {error.strerror}",
            "set DLTUNE_CACHE to a writable folder",
            required=True,
        )
    log = path.with_suffix(".log")
    if log.is_file():
        return Check(
            PLUGIN,
            "missing",
            "the last build failed",
            f"read {log}; the next `dltune profile` or `dltune run` builds it again",
            required=True,
        )
    return Check(
        PLUGIN,
        "ok",
        "not built yet; the first `dltune profile` or `dltune run` builds it",
        required=True,
    )


def impossible(reason: str) -> Check:
    """There is no TensorFlow here that can carry it; the job may bring its own."""
    return Check(PLUGIN, "limited", reason, "run dltune doctor in the job's Python environment")


# py-spy, and whether it can inspect a job on the same machine

CAP_SYS_PTRACE = 19


def py_spy(root: Path = Path("/")) -> Check:
    """Check that py-spy is present, then that it can read another process's memory (ptrace access).

    `root`: where `proc` is found.
    """
    command = py_spy_executable()
    if command is None:
        return Check("py-spy", "missing", "not installed", "pip install py-spy")
    if sealed := _filtered():
        return Check(
            "py-spy",
            "limited",
            f"{command}, but {sealed}",
            "start the container with --cap-add SYS_PTRACE",
        )
    if _capable(root):
        return Check("py-spy", "ok", f"{command}, can sample any process (CAP_SYS_PTRACE)")
    scope = _scope(root)
    if scope == 0:
        return Check("py-spy", "ok", f"{command}, can sample processes of the same user")
    return Check(
        "py-spy",
        "limited",
        f"{command}, but kernel.yama.ptrace_scope is {scope} and CAP_SYS_PTRACE is missing",
        "set kernel.yama.ptrace_scope=0 at boot: level 3 can be changed only by a restart"
        if scope == 3
        else "as root: sysctl kernel.yama.ptrace_scope=0",
    )


def can_use_py_spy(*, invited: bool = False, root: Path = Path("/")) -> tuple[str | None, str]:
    """Return the command, None if access is denied; and the state and the remedy, in words.
    `invited`: the process has named dltune as its tracer (prctl's PR_SET_PTRACER), which Yama
    accepts in scope 1."""
    check = py_spy(root)
    may = check.state == "ok" or (invited and not _filtered() and _scope(root) == 1)
    remedy = f" ({check.remedy})" if check.remedy else ""
    return py_spy_executable() if may else None, f"py-spy: {check.found}{remedy}"


def py_spy_executable() -> str | None:
    """Return the py-spy next to this Python, or py-spy on the PATH."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def _capable(root: Path) -> bool:
    match = re.search(r"^CapEff:\s*([0-9a-f]+)", text(root / "proc/self/status"), re.M)
    return bool(match and int(match[1], 16) >> CAP_SYS_PTRACE & 1) and _scope(root) < 3


def _scope(root: Path) -> int:
    try:
        return int(text(root / "proc/sys/kernel/yama/ptrace_scope"))
    except ValueError:
        return 0  # no Yama in this kernel


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _filtered() -> str | None:
    """Return the reason why process_vm_readv fails even on this process, which every kernel allows
    by itself."""
    source, target = ctypes.create_string_buffer(b"x", 1), ctypes.create_string_buffer(1)
    local = _Vector(ctypes.addressof(target), 1)
    remote = _Vector(ctypes.addressof(source), 1)
    library = ctypes.CDLL(None, use_errno=True)
    library.process_vm_readv.restype = ctypes.c_ssize_t
    done = library.process_vm_readv(
        os.getpid(), ctypes.byref(local), 1, ctypes.byref(remote), 1, ctypes.c_ulong(0)
    )
    if done == 1:
        return None
    if ctypes.get_errno() == errno.ENOSYS:
        return "this kernel or container has no process_vm_readv"
    return "the container's seccomp filter blocks process_vm_readv"
