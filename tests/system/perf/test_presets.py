from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.base.errors import UsageError
from dltune.system.perf import events as syscall
from dltune.system.perf import presets
from dltune.system.perf.access import PerfEvents, Refused, available
from dltune.system.perf.events import parse
from dltune.system.perf.presets import KNL_EVENTS, PRESETS, choose

NO_PMU = Refused("this machine has no performance monitoring unit", "get one")
counting = pytest.mark.skipif(available().software is not None, reason="nothing can be counted")
without_pmu = pytest.mark.skipif(available().hardware is None, reason="there is a PMU")


@pytest.fixture
def machine(monkeypatch):
    """Pretends a CPU that counts all but some events, and a user."""

    def pretend(*lacking: str, pmu: bool = True, kernel: bool = True) -> None:
        hardware = None if pmu else NO_PMU

        def check(events) -> None:
            for event in events:
                if event.name in lacking or not (pmu or event.software):
                    raise UsageError(f"{event.name} cannot be counted: lacking", remedy="another")

        monkeypatch.setattr(presets.access, "available", lambda: PerfEvents(hardware, None, 2))
        monkeypatch.setattr(presets, "check_group", check)
        monkeypatch.setattr(syscall, "may_count_kernel", lambda: kernel)

    return pretend


def named(events) -> list[str]:
    return [event.name for event in events]


def test_auto_is_the_paper_s_events_where_a_pmu_counts(machine, tree):
    machine()
    events, why = choose("auto", tree.root)
    assert named(events) == [
        "cycles",
        "instructions",
        "cache-misses",
        "cache-references",
        "L1-dcache-loads",
        "L1-dcache-load-misses",
    ]
    assert why.startswith("preset paper, because the CPU's counters are available: cycles, ")


def test_auto_is_software_events_where_none_does(machine, tree):
    machine(pmu=False)
    events, why = choose("auto", tree.root)
    assert named(events) == list(PRESETS["software"][0])
    assert why == (
        "preset software, because this machine has no performance monitoring unit: task-clock, "
        "minor-faults, major-faults, context-switches, cpu-migrations"
    )


def test_auto_says_which_event_of_the_paper_s_is_lacking(machine, tree):
    machine("L1-dcache-loads")
    events, why = choose("auto", tree.root)
    assert events[0].name == "task-clock"
    assert "because preset paper: L1-dcache-loads cannot be counted: lacking" in why


def test_an_ordinary_user_s_software_events(machine, tree, monkeypatch):
    machine(pmu=False, kernel=False)
    monkeypatch.setattr(presets, "paranoid_level", lambda: 2)
    events, why = choose("software", tree.root)
    assert named(events) == ["task-clock", "minor-faults", "major-faults"]
    assert all(event.exclude_kernel for event in events)
    assert "only page faults in user space, and no context switches or migrations" in why
    assert "perf_event_paranoid is 2, and without root dltune can count the kernel's events" in why


def test_amd_s_cache_events_are_told_to_be_of_the_l2(machine, tree):
    machine()
    phi(tree, 1, "AuthenticAMD")
    assert "cache events count the L2" in choose("paper", tree.root)[1]
    assert "cache events count the L2" in choose("auto", tree.root)[1]
    assert "L2" not in choose("cycles", tree.root)[1]
    phi(tree, 1)
    assert "L2" not in choose("paper", tree.root)[1]


@counting
@without_pmu
def test_auto_on_this_machine():
    events, why = choose("auto")
    assert why.startswith("preset software, because ")
    assert "task-clock" in named(events)
    with pytest.raises(UsageError, match="preset paper: cycles cannot be counted"):
        choose("paper")


def test_topdown_takes_the_list_that_the_cpu_has(machine, tree):
    cpu = "sys/bus/event_source/devices/cpu"
    machine()
    assert "stalled-cycles-frontend" in named(choose("topdown", tree.root)[0])
    tree.write(f"{cpu}/type", 4)
    tree.write(f"{cpu}/format/event", "config:0-7")
    for name in PRESETS["topdown"][1]:
        tree.write(f"{cpu}/events/{name}", "event=0x9c")
    assert named(choose("topdown", tree.root)[0]) == list(PRESETS["topdown"][1])
    for name in PRESETS["topdown"][0]:
        tree.write(f"{cpu}/events/{name}", "event=0x00")
    assert named(choose("topdown", tree.root)[0]) == list(PRESETS["topdown"][0])


def test_an_event_that_this_cpu_lacks(machine, tree):
    machine("stalled-cycles-backend", "dTLB-load-misses")
    for preset in ("topdown", "memory"):
        with pytest.raises(UsageError, match=f"preset {preset}: .* cannot be counted: lacking"):
            choose(preset, tree.root)
    with pytest.raises(UsageError, match="dTLB-load-misses cannot be counted") as raised:
        choose("cycles,dTLB-load-misses", tree.root)
    assert raised.value.remedy == "another"


def test_lists(machine, tree):
    cpu = "sys/bus/event_source/devices/cpu"
    tree.write(f"{cpu}/type", 4)
    tree.write(f"{cpu}/format/event", "config:0-7")
    tree.write(f"{cpu}/format/umask", "config:8-15")
    machine()
    asked = "cycles, cpu/event=0x2e,umask=0x41/u,minor-faults,cycles,r412e"
    events, why = choose(asked, tree.root)
    assert named(events) == ["cycles", "cpu/event=0x2e,umask=0x41/:u", "minor-faults", "r412e"]
    assert why.startswith("as asked: cycles, ")


@pytest.mark.parametrize(
    ("asked", "message", "remedy"),
    [
        ("papre", "unknown event or preset 'papre'; did you mean paper?", "a preset: auto, paper"),
        ("softwar", "did you mean software?", "a preset"),
        ("cylces", "did you mean cycles", "docs/reference/events.md"),
        ("cycles,paper", "paper is a preset and cannot be part of a list", "name one preset"),
        ("auto,cycles", "auto is a preset and cannot be part of a list", "name one preset"),
        ("", "the list of events is empty", "name events"),
        (" , ", "the list of events is empty", "name events"),
    ],
)
def test_what_cannot_be_chosen(machine, tree, asked, message, remedy):
    machine()
    with pytest.raises(UsageError) as raised:
        choose(asked, tree.root)
    assert message in str(raised.value)
    assert remedy in (raised.value.remedy or "")


def phi(tree, model: int, vendor: str = "GenuineIntel") -> None:
    tree.write(
        "proc/cpuinfo",
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: 6\nmodel\t\t: {model}\n\n"
        "processor\t: 1\nmodel\t\t: 1",
    )


@pytest.mark.parametrize("model", [0x57, 0x85])
def test_knights_landing(machine, tree, model):
    machine()
    phi(tree, model)
    events, _ = choose("knl", tree.root)
    assert events == KNL_EVENTS
    # its loads have no generic event
    paper, _ = choose("paper", tree.root)
    loads = next(event for event in paper if event.name == "L1-dcache-loads")
    assert (loads.type, loads.config) == (syscall.TYPE_RAW, 0x4004)


def test_knl_is_for_knights_landing_alone(machine, tree):
    machine()
    for model, vendor in ((0x55, "GenuineIntel"), (0x57, "AuthenticAMD")):
        phi(tree, model, vendor)
        with pytest.raises(UsageError, match="neither Intel Knights Landing nor Knights Mill"):
            choose("knl", tree.root)


def test_knl_s_events_are_those_of_intel_s_list():
    codes = {event.name: event.config for event in KNL_EVENTS}
    assert len(codes) == len(KNL_EVENTS) == len(set(codes.values()))
    assert codes["L2_REQUESTS.MISS"] == 0x412E
    assert codes["L2_REQUESTS.REFERENCE"] == 0x4F2E
    assert codes["MEM_UOPS_RETIRED.L1_MISS_LOADS"] == 0x0104
    assert codes["NO_ALLOC_CYCLES.NOT_DELIVERED"] == 0x90CA
    assert codes["PAGE_WALKS.WALKS"] == 0x40305
    assert codes["INST_RETIRED.ANY"] == parse("rc0").config
    assert all(event.exclude_kernel and event.type == syscall.TYPE_RAW for event in KNL_EVENTS)


@given(st.text("/,:=ru 01acypset-", max_size=25))
def test_any_list_is_events_or_a_usage_error(asked):
    with contextlib.suppress(UsageError):
        events, why = choose(asked)
        assert events
        assert why
