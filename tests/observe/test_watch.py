"""A job watched from outside."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.errors import UsageError
from dltune.observe.watch import JobWatch, growth

GROWS = """
import time
kept = []
while True:
    kept.append(bytearray(b"x" * (1 << 20)))
    time.sleep(0.05)
"""


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


def test_too_few_looks_tell_no_growth():
    assert growth([(n, n) for n in range(11)]) is None


def test_a_process_that_grows():
    with subprocess.Popen([sys.executable, "-c", GROWS]) as job:
        try:
            time.sleep(0.3)
            watch = JobWatch(job.pid, job.pid, {})
            while watch.seconds < 16 and watch.watching:
                time.sleep(0.1)
            seen = watch.end("a job")
        finally:
            job.kill()
    observation = seen.observation
    assert observation is not None
    main = observation.main
    assert main is not None
    assert main.pid == job.pid
    assert main.growth is not None
    assert main.growth > 1 << 20
    assert main.intra is None
    assert observation.host.others >= 0
    assert seen.io is not None
    assert not watch.watching


def test_there_is_no_such_process():
    with pytest.raises(UsageError, match="there is no process"):
        JobWatch(2**22 + 1, 2**22 + 1, {})
