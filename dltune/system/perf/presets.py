"""Choice of the events to count: presets by name, lists, and the choice and reason of `auto`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.system import kernel_files
from dltune.system.perf import access, events
from dltune.system.perf.access import KERNEL_LEVEL, paranoid_level
from dltune.system.perf.counters import check_group
from dltune.system.perf.events import TYPE_RAW, Event

# The core events of Intel's Knights Landing (Xeon Phi 7200; 7205 to 7295, Knights Mill, alike).
# Source: Intel's public event list, github.com/intel/perfmon,
# KNL/events/knightslanding_core.json, version 16: every event of a core but those of
# OFFCORE_RESPONSE (which count a tile's requests by where they are answered) and the precise
# duplicates, which count what their plain namesakes count.
# The paper (section III-B) used 26 events without naming them.

# CPUID family 6, models of Knights Landing and Knights Mill
KNL_MODELS = (0x57, 0x85)
EDGE = 1 << 18

_BRANCHES = {
    "ALL_BRANCHES": 0x00,
    "JCC": 0x7E,
    "FAR_BRANCH": 0xBF,
    "NON_RETURN_IND": 0xEB,
    "RETURN": 0xF7,
    "CALL": 0xF9,
    "IND_CALL": 0xFB,
    "REL_CALL": 0xFD,
    "TAKEN_JCC": 0xFE,
}
# name: event select, unit masks by the second part of the name
_TABLE: dict[str, tuple[int, dict[str, int]]] = {
    "RECYCLEQ": (
        0x03,
        {
            "LD_BLOCK_ST_FORWARD": 0x01,
            "LD_BLOCK_STD_NOTREADY": 0x02,
            "ST_SPLITS": 0x04,
            "LD_SPLITS": 0x08,
            "LOCK": 0x10,
            "STA_FULL": 0x20,
            "ANY_LD": 0x40,
            "ANY_ST": 0x80,
        },
    ),
    "MEM_UOPS_RETIRED": (
        0x04,
        {
            "L1_MISS_LOADS": 0x01,
            "L2_HIT_LOADS": 0x02,
            "L2_MISS_LOADS": 0x04,
            "DTLB_MISS_LOADS": 0x08,
            "UTLB_MISS_LOADS": 0x10,
            "HITM": 0x20,
            "ALL_LOADS": 0x40,
            "ALL_STORES": 0x80,
        },
    ),
    "PAGE_WALKS": (0x05, {"D_SIDE_CYCLES": 0x01, "I_SIDE_CYCLES": 0x02, "CYCLES": 0x03}),
    "L2_REQUESTS": (0x2E, {"MISS": 0x41, "REFERENCE": 0x4F}),
    "L2_REQUESTS_REJECT": (0x30, {"ALL": 0x00}),
    "CORE_REJECT_L2Q": (0x31, {"ALL": 0x00}),
    "CPU_CLK_UNHALTED": (0x3C, {"THREAD": 0x00, "REF": 0x01}),
    "L2_PREFETCHER": (0x3E, {"ALLOC_XQ": 0x04}),
    "ICACHE": (0x80, {"HIT": 0x01, "MISSES": 0x02, "ACCESSES": 0x03}),
    "FETCH_STALL": (0x86, {"ICACHE_FILL_PENDING_CYCLES": 0x04}),
    "INST_RETIRED": (0xC0, {"ANY": 0x00}),
    "UOPS_RETIRED": (0xC2, {"MS": 0x01, "ALL": 0x10, "SCALAR_SIMD": 0x20, "PACKED_SIMD": 0x40}),
    "MACHINE_CLEARS": (
        0xC3,
        {"SMC": 0x01, "MEMORY_ORDERING": 0x02, "FP_ASSIST": 0x04, "ALL": 0x08},
    ),
    "BR_INST_RETIRED": (0xC4, _BRANCHES),
    "BR_MISP_RETIRED": (0xC5, _BRANCHES),
    "NO_ALLOC_CYCLES": (
        0xCA,
        {"ROB_FULL": 0x01, "MISPREDICTS": 0x04, "RAT_STALL": 0x20, "ALL": 0x7F}
        | {"NOT_DELIVERED": 0x90},
    ),
    "RS_FULL_STALL": (0xCB, {"MEC": 0x01, "ALL": 0x1F}),
    "CYCLES_DIV_BUSY": (0xCD, {"ALL": 0x01}),
    "BACLEARS": (0xE6, {"ALL": 0x01, "RETURN": 0x08, "COND": 0x10}),
    "MS_DECODED": (0xE7, {"MS_ENTRY": 0x01}),
}
# the same selects and masks as PAGE_WALKS' cycles, counted where they begin
_EDGES = {"D_SIDE_WALKS": 0x01, "I_SIDE_WALKS": 0x02, "WALKS": 0x03}

KNL_EVENTS: tuple[Event, ...] = (
    *(
        Event(f"{group}.{name}", TYPE_RAW, select | mask << 8)
        for group, (select, masks) in _TABLE.items()
        for name, mask in masks.items()
    ),
    *(
        Event(f"PAGE_WALKS.{name}", TYPE_RAW, 0x05 | mask << 8 | EDGE)
        for name, mask in _EDGES.items()
    ),
    # of the fixed counter 2, which the kernel asks for by this code of its own
    Event("CPU_CLK_UNHALTED.REF_TSC", TYPE_RAW, 0x0300),
)


# Presets

# section III-B: cycles, last-level misses and accesses, level 1 hits, normalised by
# instructions. No event counts hits everywhere: they are loads less load misses
_PAPER = (
    "cycles",
    "instructions",
    "cache-misses",
    "cache-references",
    "L1-dcache-loads",
    "L1-dcache-load-misses",
)
# the first of each preset's lists that this CPU counts
PRESETS: dict[str, tuple[tuple[str, ...], ...]] = {
    "paper": (_PAPER,),
    # where issue slots go: Intel since Ice Lake; Intel before; others by stalled cycles
    "topdown": (
        ("slots", "topdown-retiring", "topdown-bad-spec", "topdown-fe-bound", "topdown-be-bound"),
        (
            "topdown-total-slots",
            "topdown-slots-issued",
            "topdown-slots-retired",
            "topdown-fetch-bubbles",
            "topdown-recovery-bubbles",
        ),
        (
            "cycles",
            "instructions",
            "stalled-cycles-frontend",
            "stalled-cycles-backend",
            "branch-misses",
        ),
    ),
    "memory": ((*_PAPER, "dTLB-load-misses", "minor-faults", "major-faults"),),
    "software": (
        ("task-clock", "minor-faults", "major-faults", "context-switches", "cpu-migrations"),
    ),
    "knl": (),
}
# what happens in the kernel alone
_KERNEL_ONLY = ("context-switches", "cpu-migrations")


def choose(asked: str, root: Path = Path("/")) -> tuple[tuple[Event, ...], str]:
    """The events to count and a sentence that says which and why.

    `asked`: `auto`, a preset's name, or events separated by commas (those within the slashes of
    `cpu/.../` belong to their event). Each event was opened. `root`: where `sys` and `proc` are.

    Raises UsageError, with its remedy, when an event is not known, this CPU lacks it, or the
    process may not count it.
    """
    if asked == "auto":
        events, why = _auto(root)
    elif asked in PRESETS:
        events, why = _preset(asked, root), f"preset {asked} as asked"
    else:
        events, why = _listed(asked, root), "as asked"
    return events, f"{why}: {_described(events, root)}"


def _auto(root: Path) -> tuple[tuple[Event, ...], str]:
    hardware = access.available().hardware
    if hardware is None:
        try:
            return _preset("paper", root), "preset paper, because the CPU's counters are available"
        except UsageError as error:
            why = str(error)
    else:
        why = hardware.reason
    return _preset("software", root), f"preset software, because {why}"


def _preset(name: str, root: Path) -> tuple[Event, ...]:
    if name == "knl":
        return _knl(root)
    if name == "software":
        kernel = events.may_count_kernel()
        wanted = [event for event in PRESETS[name][0] if kernel or event not in _KERNEL_ONLY]
        return _checked([events.parse(event, root) for event in wanted])
    reason: UsageError | None = None
    for candidates in PRESETS[name]:
        try:
            return _checked([_parse(event, root) for event in candidates])
        except UsageError as error:
            reason = error
    raise UsageError(f"preset {name}: {reason}", remedy=reason.remedy if reason else None)


def _knl(root: Path) -> tuple[Event, ...]:
    if not _is_knl(root):
        raise UsageError(
            "preset knl: this CPU is neither Intel Knights Landing nor Knights Mill",
            remedy="use preset paper, topdown, memory or auto",
        )
    return _checked(KNL_EVENTS)


def _listed(asked: str, root: Path) -> tuple[Event, ...]:
    # commas outside of slashes
    items = [item.strip() for item in re.findall(r"(?:/[^/]*/|[^,/]|/)+", asked)]
    if not any(items):
        raise UsageError("the list of events is empty", remedy=f"name events, or {_presets()}")
    found: dict[Event, None] = {}
    for item in filter(None, items):
        try:
            found[events.parse(item, root)] = None
        except UsageError:
            near = difflib.get_close_matches(item, ["auto", *PRESETS], n=1)
            if item in PRESETS or item == "auto":
                raise UsageError(
                    f"{item} is a preset and cannot be part of a list of events",
                    remedy="name one preset, or only events",
                ) from None
            if near:
                raise UsageError(
                    f"unknown event or preset {item!r}; did you mean {near[0]}?",
                    remedy=f"name events, or {_presets()}",
                ) from None
            raise
    return _checked(list(found))


def _presets() -> str:
    return f"a preset: auto, {', '.join(PRESETS)}"


def _parse(name: str, root: Path) -> Event:
    """As events.parse, but KNL counts its loads under codes that the kernel has no name for."""
    if name == "L1-dcache-loads" and _is_knl(root):
        codes = {event.name: event.config for event in KNL_EVENTS}
        return Event(name, events.TYPE_RAW, codes["MEM_UOPS_RETIRED.ALL_LOADS"])
    return events.parse(name, root)


def _is_knl(root: Path) -> bool:
    cpu = kernel_files.cpuinfo_value(root)
    return (
        cpu.get("vendor_id") == "GenuineIntel"
        and cpu.get("cpu family") == "6"
        and cpu.get("model") in [str(model) for model in KNL_MODELS]
    )


def _checked(events: Sequence[Event]) -> tuple[Event, ...]:
    """Opens each; Intel's top-down metrics only under their leader."""
    for group in [events] if events[0].name == "slots" else [[event] for event in events]:
        check_group(group)
    return tuple(events)


def _described(events: Sequence[Event], root: Path) -> str:
    """The events, what of the kernel they leave out, and which cache they mean."""
    listed = ", ".join(event.name for event in events)
    of_caches = any(event.name in ("cache-misses", "cache-references") for event in events)
    if of_caches and kernel_files.cpuinfo_value(root).get("vendor_id") == "AuthenticAMD":
        listed += " (the cache events count the L2: AMD counts the L3 for all cores together)"
    faults = [event for event in events if event.name.endswith("-faults")]
    if not any(event.exclude_kernel for event in faults):
        return listed
    left_out = ""
    if not any(event.name in _KERNEL_ONLY for event in events):
        left_out = ", and no context switches or migrations"
    return (
        f"{listed} (only page faults in user space{left_out}: kernel.perf_event_paranoid is "
        f"{paranoid_level()}, and without root dltune can count the kernel's events only at "
        f"{KERNEL_LEVEL} or below)"
    )
