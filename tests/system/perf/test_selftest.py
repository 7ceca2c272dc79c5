from __future__ import annotations

import ctypes

import pytest

from dltune.base.errors import UsageError
from dltune.system.checks import hardware
from dltune.system.perf import counters
from dltune.system.perf.access import Refused, available
from dltune.system.perf.counters import Group, load_binding
from dltune.system.perf.events import parse

counting = pytest.mark.skipif(available().software is not None, reason="nothing can be counted")
with_pmu = pytest.mark.skipif(available().hardware is not None, reason="there is no PMU")
PAGE = 4096
# in the page of linux/perf_event.h
INDEX, CAPABILITIES, USER_RDPMC = 12, 40, 1 << 2


@counting
def test_what_is_counted_here_is_right():
    instructions, faults, clock = counters.self_test()
    assert faults.right, faults.sentence
    assert "4,096 page faults" in faults.sentence
    assert clock.right, clock.sentence
    if refused := available().hardware:
        assert instructions.right is None
        assert instructions.sentence == refused.reason
    else:
        assert instructions.right, instructions.sentence


def test_a_counter_that_counts_wrong_is_missing_and_fails_the_doctor():
    wrong = hardware.counted(counters.Outcome("a loop", False, "counted 5 of 7"))
    assert (wrong.state, wrong.required, wrong.found) == ("missing", True, "counted 5 of 7")
    assert wrong.remedy
    assert hardware.counted(counters.Outcome("a loop", True, "7 of 7")).state == "ok"
    untried = hardware.counted(counters.Outcome("a loop", None, "there is no PMU"))
    assert (untried.state, untried.required) == ("limited", False)
    assert untried.found == "not tested: there is no PMU"


@pytest.mark.parametrize(
    ("counted", "right"), [(99_000, True), (101_000, True), (98_999, False), (101_001, False)]
)
def test_within_a_hundredth(monkeypatch, counted, right):
    """A PMU that is not at hand: the loop runs, the group's reading is pretended."""

    class Pretended(Group):
        def __init__(self, events):
            super().__init__([parse("task-clock")])

        def read(self):
            reading = super().read()
            return type(reading)(1.0, 1.0, (counted,))

    monkeypatch.setattr(counters, "TURNS", 50_000)
    monkeypatch.setattr(counters, "Group", Pretended)
    monkeypatch.setattr(counters.access, "available", lambda: selftest_pmu)
    instructions = counters.self_test()[0]
    assert instructions.right is right, instructions.sentence
    assert "of 100,000 instructions" in instructions.sentence


selftest_pmu = type(available())(None, None, 2)


@counting
def test_a_seccomp_filter_is_told_and_not_taken_for_a_wrong_count(monkeypatch):
    def refuse(*arguments, **named):
        raise UsageError("task-clock cannot be counted: a filter bars it")

    monkeypatch.setattr(counters, "Group", refuse)
    monkeypatch.setattr(
        counters.access,
        "available",
        lambda: type(selftest_pmu)(Refused("a filter", "none"), Refused("a filter", "none"), 2),
    )
    assert [outcome.right for outcome in counters.self_test()] == [None] * 3


# reading in user space


@counting
def test_software_events_are_never_read_in_user_space():
    with pytest.raises(UsageError, match="task-clock cannot be read in user space"):
        counters.UserCounter(parse("task-clock"))


def test_the_page_tells_whether_and_when():
    """On hand-built pages: not allowed, and allowed but without a counter at the moment."""
    page = (ctypes.c_char * PAGE)()
    value = ctypes.c_uint64()
    read = load_binding().dltune_rdpmc
    assert read(ctypes.addressof(page), ctypes.addressof(value)) == 1
    page[CAPABILITIES] = USER_RDPMC
    page[INDEX] = 0
    assert read(ctypes.addressof(page), ctypes.addressof(value)) in (1, 2)


@with_pmu
def test_a_read_in_user_space_agrees_with_the_kernel_s():
    try:
        counter = counters.UserCounter(parse("instructions"))
    except UsageError as error:
        pytest.skip(str(error))
    with counter:
        before = counter.read()
        load_binding().dltune_loop(1_000_000)
        counted = counter.read() - before
    assert counted == pytest.approx(2_000_000, rel=0.01)
