"""Memory that grows, and an allocator that fills."""

from __future__ import annotations

import itertools
import os
import sys
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from observations import observation, process

from dltune.findings.memory_use import MIN_WATCH
from dltune.job.launch import Job
from dltune.watch import job_watch
from dltune.watch.job_watch import growth, looked_at_again, unsettled

HOLDS = """
import sys
kept = [b"x" * (100 << 20)]
for line in open(sys.argv[1]):
    kept.append(b"x" * int(line))
    print("grown", flush=True)
"""
MIB = 1 << 20


@given(
    st.floats(-1e6, 1e6),
    st.integers(0, 10**9),
    st.lists(st.floats(0.5, 2.0), min_size=18, max_size=30),
)
def test_a_line_has_its_own_slope(slope, start, pauses):
    when = [sum(pauses[:n]) for n in range(len(pauses))]
    sizes = [(at, start + slope * at) for at in when]
    assert growth(sizes) == pytest.approx(slope, rel=1e-6, abs=1e-3)  # type: ignore[arg-type]


def test_one_jump_is_no_growth():
    assert growth([(n, 100 if n < 15 else 900) for n in range(30)]) == 0


def test_an_allocator_that_fills_is_no_growth():
    """A training of AlexNet, in MiB, looked at every 2.5 s."""
    sizes = [1285, 1779, 1902, 1964, 2016, 2018, 2019, 2019, 2020, 2020, 2020, 2082, 2098, 2098]
    sizes += [2098] * 6 + [2105] * 4 + [2126, 2143]
    assert growth([(2.5 * n, size << 20) for n, size in enumerate(sizes)]) == 0


@given(st.floats(0.5, 3.0), st.integers(0, 10**9), st.integers(1, 2))
def test_leaps_with_long_rests_are_no_growth(leap, start, seconds):
    """As large in each third of the watch: the slopes of the thirds are alike."""
    rising = [start + leap * 2**20 * (n // 7 + (n % 7 >= 5) * (n % 7 - 4) / 3) for n in range(30)]
    assert growth([(seconds * n, size) for n, size in enumerate(rising)]) == 0


@given(st.floats(0.3, 1.2), st.integers(12, 20))
def test_a_leak_at_each_step_is_growth_at_short_looks_too(step, seconds):
    """Looked at four times a second."""
    sizes = [(n / 4, MIB * int(n / 4 / step)) for n in range(4 * seconds)]
    assert growth(sizes) == pytest.approx(MIB / step, rel=0.35)


def test_too_few_looks_tell_no_growth():
    assert growth([(n, n) for n in range(11)]) is None


@pytest.mark.parametrize(("step", "told"), [(384 << 10, 1.5 * MIB), (0, 0.0)])
def test_what_grew_little_is_looked_at_again(tmp_path, monkeypatch, step, told):
    """A real job, which grows by one step from look to look; the looks are as far apart as they are
    to be by a clock of the test's, however busy the machine is."""
    seconds = itertools.count(0.0, job_watch.PAUSE)
    monkeypatch.setattr(job_watch, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    os.mkfifo(tmp_path / "orders")
    reading, writing = os.pipe()
    with (
        open(reading) as said,
        os.fdopen(os.open(tmp_path / "orders", os.O_RDWR), "w") as ordered,
        Job(
            [sys.executable, "-c", HOLDS, str(tmp_path / "orders")], plain=True, stdout=writing
        ) as job,
    ):
        os.close(writing)

        def grow(_: float) -> None:
            print(step, file=ordered, flush=True)
            assert said.readline() == "grown\n"

        grow(0.0)  # it holds what it begins with
        events = job.events
        monkeypatch.setattr(job, "events", lambda _: events(0.0))
        grew = process(pid=job.pid, growth=2.0 * MIB, resident=900 * MIB, seconds=30.0)
        again = looked_at_again(observation(processes=(grew,)), job, MIN_WATCH, grow).main
    assert again is not None
    assert again.growth == pytest.approx(told, rel=0.1)


@pytest.mark.parametrize(("grew", "told"), [(0.1, 0.1), (2.0, None), (9.0, 9.0)])
def test_without_the_time_for_it_only_what_grew_much_is_told(grew, told):
    """Of 900 MiB in 30 s, in MiB a second."""
    seen = observation(processes=(process(growth=grew * MIB, resident=900 * MIB, seconds=30.0),))
    with Job(["true"], plain=True) as job:
        again = looked_at_again(seen, job, MIN_WATCH - 1, lambda _: None)
    assert again.main == msgspec.structs.replace(seen.main, growth=told and told * MIB)
    assert again == unsettled(seen)
    assert (told is None) is any("memory grew by 120 MiB per minute" in one for one in again.unseen)
