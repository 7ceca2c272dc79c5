"""What roofs hold for: this CPU with this microcode, these cores and limits, these kernels."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import msgspec

from dltune.schemas.machine import Machine
from dltune.schemas.roofs import SCHEMA
from dltune.system import cpuinfo
from dltune.system.roofs.levels import levels
from dltune.system.roofs.roofs_binding import SOURCES

_TOLD = ("vendor_id", "cpu family", "model", "stepping", "model name", "microcode")


def unknown(kind: str | None = None) -> str | None:
    """Why a CPU of this kind (None: the one here) cannot be measured; None when it can."""
    kind = kind or platform.machine()
    if kind in ("x86_64", "AMD64"):
        return None
    return f"peak performance can be measured only on x86-64, and this CPU is {kind}"


def fingerprint(machine: Machine, root: Path = Path("/")) -> str:
    """Short hash of what the roofs depend on."""
    cpu = cpuinfo.first(root)
    flags = sorted((cpu.get("flags") or cpu.get("Features", "")).split())
    facts = (
        SCHEMA,
        [cpu.get(name) for name in _TOLD],
        flags,
        machine.fingerprint,
        [(level.name, level.one, level.each) for level in levels(machine, root)],
        _kernels(),
    )
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]


def _kernels() -> str:
    """Of the code that measures: the kernels and what calls them."""
    digest = hashlib.sha256()
    folder = SOURCES[0].parent
    for source in sorted([*folder.glob("*.cc"), *folder.glob("*.h"), *folder.glob("*.py")]):
        digest.update(source.read_bytes())
    return digest.hexdigest()
