"""The page of the events that performance counters count, and of the presets."""

from __future__ import annotations

from dltune.system.perf import events, presets
from dltune.system.perf.presets import PRESETS
from pages.markdown import bullet, code, paragraph

# what a preset is for
_PURPOSES = {
    "paper": "Cycles, cache misses and level 1 hits per instruction, the features of the "
    "regression models.",
    "topdown": "Where the CPU's issue slots go. The first list that the CPU supports is counted.",
    "memory": "The preset `paper`, and events of virtual memory.",
    "software": "Events of the kernel, which need no performance counters.",
    "knl": f"The {len(presets.KNL_EVENTS)} core events of Intel's Knights Landing.",
}
_INTRODUCTION = """
`dltune profile --counters` counts events while ops run. It takes `auto`, the name of a preset, or
a list of events separated by commas, such as `cycles,cpu/event=0x2e,umask=0x41/,minor-faults`.
[Counters](../explanation/counters.md) explains what the events count and what to do if they cannot
be counted.
"""
_OTHERS = {
    "`UNIT/TERMS/`": "an event of a unit under `/sys/bus/event_source/devices`, such as "
    "`cpu/event=0x2e,umask=0x41/` or `cpu/mem-loads,ldlat=30/`. `name=` sets the displayed name.",
    "`rHHHH`": "a raw event of the CPU: unit mask and event select in hexadecimal digits, such as "
    "`r412e`.",
    "`SUBSYSTEM:EVENT`": "a tracepoint, such as `sched:sched_switch`.",
}


def pages() -> dict[str, str]:
    return {"events.md": "\n\n".join(_parts())}


def _parts() -> list[str]:
    missing = PRESETS.keys() ^ _PURPOSES.keys()
    assert not missing, f"no description for presets: {missing}"
    parts = ["# Events", paragraph(_INTRODUCTION), "## Presets"]
    auto = "`auto`: the preset `paper` if the CPU's counters can be read, otherwise `software`."
    parts.append("\n".join([bullet(auto), *(bullet(_preset(name)) for name in PRESETS)]))
    groups = {
        "Hardware events": tuple(events.HARDWARE),
        "Cache events": tuple(events.CACHE),
        "Software events": tuple(events.SOFTWARE),
    }
    for title, names in groups.items():
        parts += [f"## {title}", paragraph(", ".join(map(code, names)))]
    parts.append("## Other names")
    aliases = [f"{code(alias)} means {code(name)}" for alias, name in events.ALIASES.items()]
    described = [f"{name}: {text}" for name, text in _OTHERS.items()]
    described.append(f"Aliases: {', '.join(aliases)}.")
    described.append("`:u` after a name counts user space only, `:uk` the kernel too.")
    parts.append("\n".join(map(bullet, described)))
    parts += [
        "## Events of the preset knl",
        paragraph(", ".join(code(e.name) for e in presets.KNL_EVENTS)),
    ]
    return parts


def _preset(name: str) -> str:
    lists = " or ".join(", ".join(map(code, names)) for names in PRESETS[name])
    return f"{code(name)}: {_PURPOSES[name]}{f' Events: {lists}.' if lists else ''}"
