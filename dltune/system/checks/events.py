"""Performance counters, as lines of the report."""

from __future__ import annotations

from dltune.system.checks import Check
from dltune.system.perf.probe import USER_LEVEL, PerfEvents, Refused
from dltune.system.perf.selftest import Outcome


def perf_events(found: PerfEvents) -> list[Check]:
    """Hardware counters, software counters and the level of kernel.perf_event_paranoid."""
    return [
        _counters("hardware events", found.hardware),
        _counters("software events", found.software),
        _paranoid(found),
    ]


def _counters(name: str, refused: Refused | None) -> Check:
    if refused is None:
        return Check(name, "ok", "available")
    return Check(name, "missing", refused.reason, refused.remedy)


def _paranoid(found: PerfEvents) -> Check:
    level = found.paranoid
    if level is None:
        return Check(
            "perf paranoid",
            "missing",
            "the kernel has no kernel.perf_event_paranoid: it was built without perf events",
            "use a kernel with CONFIG_PERF_EVENTS",
        )
    if level > USER_LEVEL and found.software is not None:
        return Check(
            "perf paranoid",
            "limited",
            f"level {level}: only root can count events",
            f"as root: sysctl kernel.perf_event_paranoid={USER_LEVEL}",
        )
    return Check(
        "perf paranoid",
        "ok",
        f"level {level}: you can count events in the user space of your processes",
    )


def counted(outcome: Outcome) -> Check:
    """A counter against work that is known; one that counts wrong must not be believed."""
    if outcome.right is None:
        return Check(outcome.name, "limited", f"not tested: {outcome.sentence}")
    if outcome.right:
        return Check(outcome.name, "ok", outcome.sentence)
    return Check(
        outcome.name,
        "missing",
        outcome.sentence,
        "do not count these events on this machine: dltune profile --counters none",
        required=True,
    )
