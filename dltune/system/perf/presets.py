"""Which events to count: presets by name, lists, and what `auto` chooses here and why."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.system import cpuinfo
from dltune.system.perf import events as names
from dltune.system.perf import knl, probe, syscall
from dltune.system.perf.events import Event
from dltune.system.perf.group import check
from dltune.system.perf.probe import KERNEL_LEVEL, paranoid_level

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
    hardware = probe.available().hardware
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
        kernel = syscall.may_count_kernel()
        wanted = [event for event in PRESETS[name][0] if kernel or event not in _KERNEL_ONLY]
        return _checked([names.parse(event, root) for event in wanted])
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
    return _checked(knl.EVENTS)


def _listed(asked: str, root: Path) -> tuple[Event, ...]:
    # commas outside of slashes
    items = [item.strip() for item in re.findall(r"(?:/[^/]*/|[^,/]|/)+", asked)]
    if not any(items):
        raise UsageError("the list of events is empty", remedy=f"name events, or {_presets()}")
    found: dict[Event, None] = {}
    for item in filter(None, items):
        try:
            found[names.parse(item, root)] = None
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
    """As names.parse, but KNL counts its loads under codes that the kernel has no name for."""
    if name == "L1-dcache-loads" and _is_knl(root):
        codes = {event.name: event.config for event in knl.EVENTS}
        return Event(name, syscall.TYPE_RAW, codes["MEM_UOPS_RETIRED.ALL_LOADS"])
    return names.parse(name, root)


def _is_knl(root: Path) -> bool:
    cpu = cpuinfo.first(root)
    return (
        cpu.get("vendor_id") == "GenuineIntel"
        and cpu.get("cpu family") == "6"
        and cpu.get("model") in [str(model) for model in knl.MODELS]
    )


def _checked(events: Sequence[Event]) -> tuple[Event, ...]:
    """Opens each; Intel's top-down metrics only under their leader."""
    for group in [events] if events[0].name == "slots" else [[event] for event in events]:
        check(group)
    return tuple(events)


def _described(events: Sequence[Event], root: Path) -> str:
    """The events, what of the kernel they leave out, and which cache they mean."""
    listed = ", ".join(event.name for event in events)
    of_caches = any(event.name in ("cache-misses", "cache-references") for event in events)
    if of_caches and cpuinfo.first(root).get("vendor_id") == "AuthenticAMD":
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
