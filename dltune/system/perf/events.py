"""Performance events: the system call that opens an event, and the names of events.

The C library has no wrapper for perf_event_open. Numbers are those of linux/perf_event.h.

An event's name has the form that perf(1) writes:

    cycles, instructions, cache-misses ...      hardware
    LLC-load-misses, L1-dcache-loads ...        cache
    task-clock, minor-faults ...                software
    cpu/event=0x3c,umask=0x0/, cpu/mem-loads/   any unit under /sys/bus/event_source/devices
    r003c                                       raw, of the CPU's own unit
    sched:sched_switch                          tracepoint

Kernel events are counted as follows, unless `:u` (user space alone) or `:uk` (both) is appended:

- hardware, cache and raw events of the CPU: user space alone, so that figures mean the same at
  every privilege;
- page faults: the kernel's own too (a system call that touches a new page) if this process is
  permitted to count them, else user space's alone;
- context switches, migrations and tracepoints: the kernel, where alone they happen; they need the
  privilege for it;
- clocks make no difference.
"""

from __future__ import annotations

import contextlib
import ctypes
import difflib
import errno
import os
import platform
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.schemas.profile import CLOCKS

# The system call

# perf_event_open by machine
NUMBERS = {
    "x86_64": 298,
    "i686": 336,
    "aarch64": 241,
    "riscv64": 241,
    "loongarch64": 241,
    "armv7l": 364,
    "ppc64le": 319,
    "s390x": 331,
}

TYPE_HARDWARE, TYPE_SOFTWARE, TYPE_TRACEPOINT, TYPE_CACHE, TYPE_RAW = 0, 1, 2, 3, 4
SOFTWARE_DUMMY = 9

# bits of an event's flags
DISABLED, INHERIT = 1 << 0, 1 << 1
EXCLUDE_KERNEL, EXCLUDE_HV = 1 << 5, 1 << 6
SAMPLE_ID_ALL, USE_CLOCKID = 1 << 18, 1 << 25

# what a read returns
FORMAT_ENABLED, FORMAT_RUNNING, FORMAT_GROUP = 1 << 0, 1 << 1, 1 << 3

FLAG_FD_CLOEXEC = 8
# up to and including `clockid` (Linux 4.1)
ATTR_SIZE = 96
CLOCK_MONOTONIC = 1


def perf_event_open(
    kind: int,
    config: int,
    *,
    config1: int = 0,
    config2: int = 0,
    flags: int = 0,
    read_format: int = 0,
    period: int = 0,
    sample_type: int = 0,
    registers: int = 0,
    stack: int = 0,
    tid: int = 0,
    cpu: int = -1,
    leader: int = -1,
) -> int:
    """The descriptor of a new event; times of its samples are CLOCK_MONOTONIC.

    `registers`: of user space, a bit each (asm/perf_regs.h); `stack`: bytes of the user's stack.
    `tid`: the thread, 0 for the calling one, -1 for all (with a `cpu`). Raises OSError with the
    kernel's errno, and ENOSYS on an architecture whose number of the call is not known.
    """
    number = NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if sample_type:
        flags |= USE_CLOCKID
    attributes = ctypes.create_string_buffer(
        struct.pack(
            "=IIQQQQQIIQQQQIi",
            kind,
            ATTR_SIZE,
            config,
            period,
            sample_type,
            read_format,
            flags,
            0,  # wake up readers: never, they look
            0,  # breakpoints
            config1,
            config2,
            0,  # branches
            registers,
            stack,
            CLOCK_MONOTONIC if sample_type else 0,
        ),
        ATTR_SIZE,
    )
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    handle = call(
        ctypes.c_long(number),
        attributes,
        ctypes.c_int(tid),
        ctypes.c_int(cpu),
        ctypes.c_int(leader),
        ctypes.c_ulong(FLAG_FD_CLOEXEC),
    )
    if handle < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(handle)


def may_count_kernel() -> bool:
    """Whether this process may count what the kernel does for it. The kernel is asked: in a user
    namespace the capabilities that a process reads of itself are not those that count."""
    with contextlib.suppress(OSError):
        os.close(perf_event_open(TYPE_SOFTWARE, SOFTWARE_DUMMY))
        return True
    return False


# Events by name

DEVICES = "sys/bus/event_source/devices"
TRACING = ("sys/kernel/tracing/events", "sys/kernel/debug/tracing/events")

HARDWARE = {
    "cycles": 0,
    "instructions": 1,
    "cache-references": 2,
    "cache-misses": 3,
    "branches": 4,
    "branch-misses": 5,
    "bus-cycles": 6,
    "stalled-cycles-frontend": 7,
    "stalled-cycles-backend": 8,
    "ref-cycles": 9,
}
SOFTWARE = {
    "cpu-clock": 0,
    "task-clock": 1,
    "page-faults": 2,
    "context-switches": 3,
    "cpu-migrations": 4,
    "minor-faults": 5,
    "major-faults": 6,
    "alignment-faults": 7,
    "emulation-faults": 8,
    "cgroup-switches": 11,
}
ALIASES = {
    "cpu-cycles": "cycles",
    "branch-instructions": "branches",
    "idle-cycles-frontend": "stalled-cycles-frontend",
    "idle-cycles-backend": "stalled-cycles-backend",
    "faults": "page-faults",
    "cs": "context-switches",
    "migrations": "cpu-migrations",
}
FAULTS = ("page-faults", "minor-faults", "major-faults", "alignment-faults", "emulation-faults")

# cache: its number, and the operations it knows
_CACHES = {
    "L1-dcache": (0, "load store prefetch"),
    "L1-icache": (1, "load prefetch"),
    "LLC": (2, "load store prefetch"),
    "dTLB": (3, "load store prefetch"),
    "iTLB": (4, "load"),
    "branch": (5, "load"),
    "node": (6, "load store prefetch"),
}
_OPERATIONS = {"load": (0, "loads"), "store": (1, "stores"), "prefetch": (2, "prefetches")}
CACHE = {
    f"{cache}-{suffix}": number | code << 8 | result << 16
    for cache, (number, operations) in _CACHES.items()
    for operation in operations.split()
    for code, plural in [_OPERATIONS[operation]]
    for result, suffix in enumerate((plural, f"{operation}-misses"))
}

_RAW = re.compile(r"r([0-9a-fA-F]{1,16})")
_UNIT = re.compile(r"([^/\s]+)/([^/]*)/")
_MODIFIED = re.compile(r"(.+?)(?::|(?<=/))(u|uk|ku)")
_TERM = re.compile(r"([\w.-]+)(?:=(.+))?")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_ATTACHED = (".scale", ".unit", ".per-pkg", ".snapshot")  # files that describe an event


@dataclass(frozen=True)
class Event:
    """One event as perf_event_open takes it: plain integers, of 32 bits (`type`) and 64 bits.

    `exclude_kernel` leaves out counts in the kernel and in a hypervisor. `name` is for people;
    events that differ only in it are the same to the kernel.
    """

    name: str
    type: int
    config: int
    config1: int = 0
    config2: int = 0
    exclude_kernel: bool = True

    @property
    def software(self) -> bool:
        """True if the kernel counts it, without any of the CPU's few counters."""
        return self.type in (TYPE_SOFTWARE, TYPE_TRACEPOINT)


def parse(text: str, root: Path = Path("/")) -> Event:
    """Return the event of that name; `root`: where `sys` is found.

    Raises UsageError, with the nearest names, when there is no such event, unit or field, and when
    tracepoints cannot be read. Whether the CPU can count the event shows when it is opened.
    """
    wanted = text.strip()
    match = _MODIFIED.fullmatch(wanted)
    if match is None:
        return _event(wanted, root)
    event = _event(match[1], root)
    return replace(event, name=f"{event.name}:{match[2]}", exclude_kernel=match[2] == "u")


def _event(wanted: str, root: Path) -> Event:
    plain = {name.lower(): name for name in (*HARDWARE, *SOFTWARE, *CACHE)}
    lower = wanted.lower()
    name = ALIASES.get(lower) or plain.get(lower)
    if name in HARDWARE:
        return Event(name, TYPE_HARDWARE, HARDWARE[name])
    if name in CACHE:
        return Event(name, TYPE_CACHE, CACHE[name])
    if name in SOFTWARE:
        excluded = name in CLOCKS or (name in FAULTS and not may_count_kernel())
        return Event(name, TYPE_SOFTWARE, SOFTWARE[name], exclude_kernel=excluded)
    if match := _UNIT.fullmatch(wanted):
        return _of_unit(wanted, match[1], match[2], root)
    # a unit's own name wins over raw: a few begin with r and go on in hexadecimal digits
    for unit in _core_units(root):
        if wanted in _names(unit / "events"):
            return replace(_of_unit(wanted, unit.name, wanted, root), name=wanted)
    if match := _RAW.fullmatch(wanted):
        return Event(wanted, TYPE_RAW, int(match[1], 16))
    if wanted.count(":") == 1:
        return _tracepoint(wanted, root)
    named = [name for unit in _core_units(root) for name in _names(unit / "events")]
    raise UsageError(
        f"unknown event {wanted!r}{_nearest(wanted, [*plain.values(), *ALIASES, *named])}",
        remedy=(
            "docs/reference/events.md lists the names; write others as cpu/event=0x..,umask=0x../"
        ),
    )


def _core_units(root: Path) -> list[Path]:
    """The units of the CPU's cores: `cpu`, or one for each kind of core."""
    units = sorted((root / DEVICES).glob("*"))
    return [unit for unit in units if unit.name == "cpu" or (unit / "cpus").exists()]


def _of_unit(wanted: str, name: str, terms: str, root: Path) -> Event:
    unit = root / DEVICES / name
    try:
        kind = int((unit / "type").read_text())
    except (OSError, ValueError):
        if name == "cpu" and not _core_units(root):
            raise UsageError(
                f"{wanted}: this machine has no performance monitoring unit, like most virtual "
                "machines",
                remedy="count software events, or measure on bare metal or with a virtual PMU",
            ) from None
        units = _names(root / DEVICES)
        raise UsageError(
            f"{wanted}: unknown unit {name!r}{_nearest(name, units)}",
            remedy=f"use a unit under /{DEVICES}: {', '.join(units) or 'none'}",
        ) from None
    configs = {"config": 0, "config1": 0, "config2": 0}
    label = wanted
    settings: dict[str, str] = {}
    for term in filter(None, terms.split(",")):
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise UsageError(
                f"{wanted}: {term!r} is not FIELD=VALUE, FIELD or an event's name",
                remedy="write the event as UNIT/FIELD=VALUE,.../",
            )
        field, value = match[1], match[2]
        if field == "name" and value:
            label = value
        elif value is None and field in _names(unit / "events"):
            # terms next to a named event fill in or override its terms
            settings = {**_named(unit, field), **settings}
        else:
            settings[field] = value or "1"
    for field, value in settings.items():
        _set(configs, unit, field, value, wanted)
    return Event(label, kind, **configs, exclude_kernel=unit in _core_units(root))


def _named(unit: Path, event: str) -> dict[str, str]:
    text = (unit / "events" / event).read_text().strip()
    pairs = (term.partition("=") for term in text.split(","))
    return {field.strip(): value.strip() or "1" for field, _, value in pairs}


def _set(configs: dict[str, int], unit: Path, field: str, value: str, wanted: str) -> None:
    if value == "?":
        raise UsageError(f"{wanted}: field {field} has no value", remedy=f"add {field}=N")
    try:
        number = int(value, 0)
        if number < 0:
            raise ValueError
    except ValueError:
        raise UsageError(
            f"{wanted}: {field}={value} is not a number of at least 0",
            remedy=f"write a decimal or hexadecimal number, such as {field}=0x3c",
        ) from None
    if field in configs:
        layout = f"{field}:0-63"
    elif field in _names(unit / "format"):
        layout = (unit / "format" / field).read_text().strip()
    else:
        known = [*_names(unit / "format"), *_names(unit / "events"), *configs]
        raise UsageError(
            f"{wanted}: unit {unit.name!r} has no field or event {field!r}{_nearest(field, known)}",
            remedy=f"use a field of the unit: {', '.join(_names(unit / 'format')) or 'none'}",
        )
    word, _, ranges = layout.partition(":")
    if word not in configs:
        raise UsageError(
            f"{wanted}: field {field} is part of {word}, which dltune cannot set",
            remedy="leave the field out",
        )
    left = number
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise UsageError(
                f"{wanted}: dltune cannot parse /{DEVICES}/{unit.name}/format/{field}",
                remedy="leave the field out, or set config=0x..",
            )
        first, last = int(match[1]), int(match[2] or match[1])
        mask = (1 << (last - first + 1)) - 1
        configs[word] = configs[word] & ~(mask << first) | (left & mask) << first
        left >>= last - first + 1
    if left:
        raise UsageError(
            f"{wanted}: {field}={value} is too large for the field ({layout})",
            remedy="use a smaller value",
        )


def _tracepoint(wanted: str, root: Path) -> Event:
    subsystem, _, name = wanted.partition(":")
    for folder in (root / events for events in TRACING):
        try:
            if not folder.is_dir():
                continue
            subsystems = [child.name for child in folder.iterdir() if child.is_dir()]
            if subsystem not in subsystems:
                raise UsageError(
                    f"{wanted}: unknown group of tracepoints "
                    f"{subsystem!r}{_nearest(subsystem, subsystems)}",
                    remedy=f"use a folder of {folder}",
                )
            known = [child.name for child in (folder / subsystem).iterdir() if child.is_dir()]
            if name not in known:
                raise UsageError(
                    f"{wanted}: {subsystem} has no tracepoint {name!r}{_nearest(name, known)}",
                    remedy=f"use a folder of {folder / subsystem}",
                )
            config = int((folder / subsystem / name / "id").read_text())
        except PermissionError:
            raise UsageError(
                f"{wanted}: only root can read the kernel's tracepoints",
                remedy=(
                    "run dltune as root, or as root: mount -o remount,mode=755 /sys/kernel/tracing"
                ),
            ) from None
        return Event(wanted, TYPE_TRACEPOINT, config, exclude_kernel=False)
    raise UsageError(
        f"{wanted}: the kernel's tracepoints are not mounted",
        remedy="as root: mount -t tracefs tracefs /sys/kernel/tracing",
    )


def _names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.glob("*") if not one.name.endswith(_ATTACHED))


def _nearest(wanted: str, known: Iterable[str]) -> str:
    names: Mapping[str, str] = {name.lower(): name for name in known}
    found = difflib.get_close_matches(wanted.lower(), names, n=3, cutoff=0.6)
    return f"; did you mean {', '.join(names[name] for name in found)}?" if found else ""
