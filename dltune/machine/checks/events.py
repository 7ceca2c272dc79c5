"""Performance counters, as lines of the report."""

from __future__ import annotations

from dltune.machine.checks import Check
from dltune.machine.perf.probe import USER_LEVEL, PerfEvents, Refused
from dltune.machine.perf.selftest import Outcome


def perf_events(found: PerfEvents) -> list[Check]:
    """Hardware counters, software counters and the level of kernel.perf_event_paranoid."""
    return [
        _counters("hardware events", found.hardware),
        _counters("software events", found.software),
        _paranoid(found),
    ]


def _counters(name: str, refused: Refused | None) -> Check:
    if refused is None:
        return Check(name, "ok", "can be counted")
    return Check(name, "missing", refused.reason, refused.remedy)


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
    return Check(
        "perf paranoid", "ok", f"level {level}, which does not bar counting one's own user space"
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
        "do not count such events here: dltune profile --counters none",
        required=True,
    )
