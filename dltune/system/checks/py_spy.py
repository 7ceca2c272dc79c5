"""Check that py-spy can inspect a job on the same machine."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import sys
from pathlib import Path

from dltune.system.checks import Check
from dltune.system.proc.entry import text

CAP_SYS_PTRACE = 19


def py_spy(root: Path = Path("/")) -> Check:
    """Check that py-spy is present, then that it can read another process's memory (ptrace access).

    `root`: where `proc` is found.
    """
    command = executable()
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


def usable(*, invited: bool = False, root: Path = Path("/")) -> tuple[str | None, str]:
    """Return the command, None if access is denied; and the state and the remedy, in words.
    `invited`: the process has named dltune as its tracer (prctl's PR_SET_PTRACER), which Yama
    accepts in scope 1."""
    check = py_spy(root)
    may = check.state == "ok" or (invited and not _filtered() and _scope(root) == 1)
    remedy = f" ({check.remedy})" if check.remedy else ""
    return executable() if may else None, f"py-spy: {check.found}{remedy}"


def executable() -> str | None:
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
