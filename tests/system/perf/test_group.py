from __future__ import annotations

import contextlib
import errno
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_work import open_events, sleep_off_the_cpu, thread_counts, touch, untouched

from dltune.base.errors import DltuneError, UsageError
from dltune.system.perf import counters as group_module
from dltune.system.perf.access import available
from dltune.system.perf.counters import LARGEST, Group, Reading, decode, split
from dltune.system.perf.events import TYPE_RAW, TYPE_SOFTWARE, Event, may_count_kernel, parse

PAGES = 500
U64 = st.integers(0, 2**64 - 1)

counting = pytest.mark.skipif(available().software is not None, reason="nothing can be counted")
of_the_kernel = pytest.mark.skipif(
    not may_count_kernel(), reason="what the kernel does cannot be counted"
)

# reads on hand-built bytes


@given(U64, U64, st.lists(U64, min_size=1, max_size=20))
def test_a_read_is_number_enabled_running_and_values(enabled, running, values):
    data = struct.pack(f"=QQQ{len(values)}Q", len(values), enabled, running, *values)
    reading = decode(data, len(values))
    assert reading.values == tuple(values)
    assert reading.enabled == pytest.approx(enabled / 1e9)
    assert reading.running == pytest.approx(running / 1e9)


@given(st.binary(max_size=64), st.integers(1, 4))
def test_any_other_bytes_are_an_error(data, events):
    if len(data) == 8 * (3 + events) and struct.unpack_from("=Q", data)[0] == events:
        return
    with pytest.raises(DltuneError):
        decode(data, events)


def test_counters_that_vanish_in_mid_run():
    with pytest.raises(DltuneError, match="took the counters away during the run") as raised:
        decode(b"", 3)
    assert raised.value.remedy


TIMES = st.floats(1e-6, 1e6)


@given(TIMES, st.floats(0.001, 1), st.lists(st.integers(0, 2**53), max_size=5))
def test_scaling_makes_up_for_the_time_without_counters(enabled, share, values):
    reading = Reading(enabled, enabled * share, tuple(values))
    assert reading.share == pytest.approx(share)
    scaled = reading.scaled()
    assert scaled is not None
    for value, whole in zip(values, scaled, strict=True):
        assert whole * share == pytest.approx(value)
        assert whole >= value


def test_scaling_at_its_ends():
    assert Reading(2.0, 2.0, (7,)).scaled() == (7.0,)
    assert Reading(2.0, 0.0, (0,)).scaled() is None
    assert Reading(0.0, 0.0, (0,)).share == 1
    assert Reading(1.0, 1.0 + 1e-9, (5,)).share == 1


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=5),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
def test_a_difference_undoes_a_sum(pairs, enabled, running):
    first = Reading(1.0, 0.5, tuple(a for a, _ in pairs))
    later = Reading(1.0 + enabled, 0.5 + running, tuple(a + b for a, b in pairs))
    found = later.since(first)
    assert found.values == tuple(b for _, b in pairs)
    assert (found.enabled, found.running) == (enabled, running)


# real software events


@counting
def test_page_faults_are_the_pages_touched():
    events = [parse(name) for name in ("page-faults", "minor-faults", "major-faults")]
    with untouched(2 * PAGES) as memory, Group(events) as g:
        before = thread_counts().faults
        g.enable()
        touch(memory, PAGES)
        g.disable()
        after = thread_counts().faults
        first = g.read()
        touch(memory + PAGES * os.sysconf("SC_PAGESIZE"), PAGES)  # not while disabled
        assert g.read().values == first.values
        assert first.values[0] == first.values[1] + first.values[2]
        assert PAGES <= first.values[0] <= after - before
        assert first.share == 1
        assert first.enabled > 0


@counting
@of_the_kernel
def test_the_kernel_s_page_faults_count_too_unless_left_out():
    with (
        open("/dev/zero", "rb", buffering=0) as zeros,
        untouched(PAGES) as memory,
        Group([parse("page-faults"), parse("page-faults:u")]) as g,
    ):
        g.enable()
        got = os.readv(zeros.fileno(), [_bytes_at(memory, PAGES)])
        g.disable()
        assert got == PAGES * os.sysconf("SC_PAGESIZE")
        everywhere, in_user_space = g.read().values
    assert everywhere - in_user_space >= PAGES


def _bytes_at(address: int, pages: int):
    import ctypes

    return (ctypes.c_char * (pages * os.sysconf("SC_PAGESIZE"))).from_address(address)


@counting
@of_the_kernel
def test_context_switches_are_those_of_the_kernel_s_own_account():
    with Group([parse("context-switches"), parse("task-clock")]) as g:
        outside = thread_counts().switches
        g.enable()
        inside = thread_counts().switches
        slept = sleep_off_the_cpu(15) - inside
        g.disable()
        switches, clock = g.read().values
        outside = thread_counts().switches - outside
    assert 15 <= slept <= switches <= outside
    assert clock / 1e9 > 0


@counting
@of_the_kernel
def test_another_thread_by_its_number():
    """Only the other thread's faults and switches are counted."""
    ready, go, worked, read = (threading.Event() for _ in range(4))
    number, outside, inside = [], [], []

    def work() -> None:
        number.append(threading.get_native_id())
        outside.append(thread_counts())
        ready.set()
        go.wait()
        inside.append(thread_counts())
        touch(memory, PAGES)
        sleep_off_the_cpu(10)
        inside.append(thread_counts())
        worked.set()
        read.wait()
        outside.append(thread_counts())

    with untouched(2 * PAGES) as memory:
        thread = threading.Thread(target=work)
        thread.start()
        ready.wait()
        with Group([parse("page-faults"), parse("context-switches")], tid=number[0]) as g:
            g.enable()
            touch(memory + PAGES * os.sysconf("SC_PAGESIZE"), PAGES)
            go.set()
            worked.wait()
            faults, switches = g.read().values
            read.set()
            thread.join()
    least, most = (end.since(start) for start, end in (inside, outside))
    assert PAGES <= least.faults <= faults <= most.faults
    assert 10 <= least.switches <= switches <= most.switches


@counting
def test_what_it_starts_is_counted_when_inherited():
    """A thread and a process, beside groups that count the caller alone."""
    with (
        untouched(2 * PAGES) as memory,
        Group([parse("page-faults"), parse("task-clock")], inherit=True) as all_of_it,
        Group([parse("page-faults")]) as own,
    ):
        all_of_it.enable()
        before = thread_counts()
        own.enable()
        thread = threading.Thread(target=touch, args=(memory, PAGES))
        thread.start()
        thread.join()
        alone = own.read().values[0]  # first: what is read later has counted no less
        callers = thread_counts().since(before).faults
        with_thread = all_of_it.read().values[0]
        subprocess.run(["true"], check=True)
        with_process = all_of_it.read().values[0]
    assert with_thread - alone >= PAGES
    assert alone <= callers
    assert with_process > with_thread


@counting
@pytest.mark.parametrize("refused", [0, 3, 10**9])
def test_inherited_events_are_read_again_while_a_thread_that_has_them_ends(monkeypatch, refused):
    """The kernel refuses to read a group for the moment in which a thread that inherited it ends:
    too rare (one read in 300 to 30,000) to wait for."""
    reads = iter(range(10**9))

    def read(handle: int, size: int) -> bytes:
        if next(reads) < refused:
            raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
        return real(handle, size)

    real = os.read
    monkeypatch.setattr(group_module, "ENDING", 240.0 if refused < 10**9 else 0.0)
    with Group([parse("page-faults"), parse("task-clock")], inherit=True) as group:
        group.enable()
        monkeypatch.setattr(group_module.os, "read", read)
        if refused < 10**9:
            assert group.read().values[1] > 0
        else:
            with pytest.raises(DltuneError, match="could not be read for 0 s"):
                group.read()


@counting
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to count whole CPUs")
def test_all_that_runs_on_a_cpu():
    """On every CPU, so that it does not matter where the scheduler puts this thread."""
    with contextlib.ExitStack() as opened, untouched(PAGES) as memory:
        groups = [
            opened.enter_context(Group([parse("page-faults")], tid=-1, cpu=cpu))
            for cpu in os.sched_getaffinity(0)
        ]
        for group in groups:
            group.enable()
        touch(memory, PAGES)
        assert sum(group.read().values[0] for group in groups) >= PAGES


@counting
@of_the_kernel
@pytest.mark.skipif(
    not Path("/sys/bus/event_source/devices/msr/events/tsc").exists(), reason="no unit for the TSC"
)
def test_a_counter_of_the_cpu_beside_software_events():
    """The time stamp counter is there in virtual machines too; it and a clock of the kernel tell
    the same time, at a frequency that does not change: in most of a few short times, because the
    two are not read at one instant, and the machine may stand still between them."""
    events = [parse("task-clock"), parse("msr/tsc/"), parse("minor-faults")]
    (only,) = split(events)
    rates = []
    with Group(only) as g:
        g.enable()
        for _ in range(9):
            before = g.read()
            sum(range(300_000))
            found = g.read().since(before)
            assert found.share == 1
            by_name = dict(zip((e.name for e in only), found.values, strict=True))
            rates.append(by_name["msr/tsc/"] / by_name["task-clock"])
    low, middle, high = sorted(rates)[2:7:2]
    assert low == pytest.approx(high, rel=0.2)
    assert 0.1 < middle < 10  # GHz


@counting
def test_a_thread_that_has_ended():
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(UsageError, match=f"thread {ended.pid} has ended"):
        Group([parse("task-clock")], tid=ended.pid)


@counting
def test_nothing_stays_open_when_an_event_is_refused():
    before = open_events()
    with pytest.raises(UsageError, match="nonsense cannot be counted"):
        Group([parse("task-clock"), Event("nonsense", TYPE_SOFTWARE, 10**6)])
    Group([parse("task-clock")]).close()
    assert open_events() == before


# splitting


@counting
def test_software_events_are_one_group():
    events = [parse(name) for name in ("task-clock", "minor-faults", "major-faults", "cpu-clock")]
    assert split(events) == [tuple(events)]
    assert split([]) == []


@counting
def test_more_software_events_than_a_group_holds():
    events = [parse("task-clock")] * (LARGEST + 1)
    assert [len(group) for group in split(events)] == [LARGEST, 1]


@counting
def test_an_event_that_cannot_be_counted_is_told():
    with pytest.raises(UsageError, match="nonsense cannot be counted"):
        split([parse("task-clock"), Event("nonsense", TYPE_SOFTWARE, 10**6)])


@pytest.fixture
def counters(monkeypatch):
    """A CPU that is not at hand: so many counters, and fixed ones for cycles and instructions."""

    def pretend(general: int) -> list[tuple[Event, ...]]:
        asked: list[tuple[Event, ...]] = []

        def counts(events) -> bool:
            asked.append(tuple(events))
            if any(e.name == "slots" for e in events) and events[0].name != "slots":
                return False
            fixed = ("cycles", "instructions", "slots")
            return sum(not e.software and e.name not in fixed for e in events) <= general

        monkeypatch.setattr(group_module, "counts", counts)
        monkeypatch.setattr(group_module, "check_group", lambda events: None)
        return asked

    return pretend


@pytest.mark.parametrize(("general", "groups"), [(2, 13), (4, 7), (8, 4)])
def test_events_are_spread_over_the_fewest_groups(counters, general, groups):
    counters(general)
    raw = [Event(f"r{number:x}", TYPE_RAW, number) for number in range(26)]
    events = [parse("cycles"), *raw, parse("task-clock"), parse("instructions")]
    found = split(events)
    assert len(found) == groups
    assert sorted(e.name for group in found for e in group) == sorted(e.name for e in events)
    assert all(len(group) <= LARGEST for group in found)
    assert parse("task-clock") in found[0]


def test_top_down_metrics_stay_under_their_leader(counters):
    asked = counters(8)
    names = ("topdown-retiring", "cycles", "slots", "topdown-bad-spec", "minor-faults")
    events = [Event(name, 4, number) for number, name in enumerate(names[:4])]
    (found,) = split([*events, parse("minor-faults")])
    assert [e.name for e in found] == [
        "slots",
        "topdown-retiring",
        "topdown-bad-spec",
        "cycles",
        "minor-faults",
    ]
    assert all(group[0].name == "slots" for group in asked if len(group) > 1)


@pytest.mark.skipif(available().hardware is not None, reason="there is no PMU")
def test_on_a_real_pmu_each_group_counts_all_the_time():
    events = [parse(name) for name in ("cycles", "instructions", "branches", "branch-misses")]
    for group in split(events):
        with Group(group) as opened:
            opened.enable()
            sum(range(100_000))
            opened.disable()
            reading = opened.read()
        assert reading.share == pytest.approx(1, abs=0.01)
        assert all(reading.values)


TRACE = """
import ctypes, os, resource, sys, time
from pathlib import Path
# a mount of its own, which nobody else sees and which ends with the process
libc = ctypes.CDLL(None)
if not Path("/sys/kernel/tracing/events").is_dir() and (
    libc.unshare(0x20000)
    or libc.mount(b"none", b"/", None, ctypes.c_ulong(0x44000), None)
    or libc.mount(b"tracefs", b"/sys/kernel/tracing", b"tracefs", ctypes.c_ulong(0), None)
):
    sys.exit(77)
from dltune.system.perf.events import parse
from dltune.system.perf.counters import Group
with Group([parse("sched:sched_switch"), parse("context-switches")]) as group:
    group.enable()
    own = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    while resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw < own + 10:
        time.sleep(0.001)
    group.disable()
    print(*group.read().values)
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to read the kernel's tracepoints")
@counting
def test_a_tracepoint_counts_what_the_software_event_counts():
    done = subprocess.run([sys.executable, "-c", TRACE], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("tracepoints cannot be mounted here")
    assert done.returncode == 0, done.stderr
    tracepoint, switches = map(int, done.stdout.split())
    assert tracepoint == switches >= 10
