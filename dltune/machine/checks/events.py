"""Performance counters, as lines of the report."""

from __future__ import annotations

from dltune.machine.checks import Check
from dltune.machine.perf_events import USER_LEVEL, PerfEvents


def perf_events(found: PerfEvents) -> list[Check]:
    """Hardware counters, software counters and the level of kernel.perf_event_paranoid."""
    return [
        _counters("hardware events", found.hardware, found.paranoid),
        _counters("software events", found.software, found.paranoid),
        _paranoid(found),
    ]


def _counters(name: str, reason: str | None, paranoid: int | None) -> Check:
    if reason is None:
        return Check(name, "ok", "can be counted")
    if paranoid is not None and paranoid > USER_LEVEL:
        remedy = f"as root: sysctl kernel.perf_event_paranoid={USER_LEVEL}"
    elif "seccomp" in reason:
        remedy = "start the container with perf_event_open allowed (--cap-add PERFMON)"
    elif name == "hardware events":
        remedy = "nothing, if times are enough; else measure on bare metal or with a virtual PMU"
    else:
        remedy = "use a kernel with perf events"
    return Check(name, "missing", reason, remedy)


def _paranoid(found: PerfEvents) -> Check:
    level = found.paranoid
    if level is None:
        return Check(
            "perf paranoid",
            "missing",
            "the kernel has no kernel.perf_event_paranoid",
            "use a kernel with perf events",
        )
    if level > USER_LEVEL and found.software is not None:
        return Check(
            "perf paranoid",
            "limited",
            f"level {level}: users without privilege may count nothing",
            f"as root: sysctl kernel.perf_event_paranoid={USER_LEVEL}",
        )
    return Check("perf paranoid", "ok", f"level {level}: a process may count its own user space")
