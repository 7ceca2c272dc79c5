"""Cases and sample cases, on the paper's machine and others."""

from __future__ import annotations

from itertools import pairwise

import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from dltune.simulate.op_time import all_cases
from dltune.simulate.regression import sample_cases
from dltune.system.topology import builtin_machine


def test_the_paper_s_machine_has_68_cases():
    cases = all_cases(builtin_machine("knl-7250"))
    assert len(cases) == 68
    assert sum(placement == "spread" for _, placement in cases) == 34


def test_two_cores_have_two():
    cases = all_cases(synthetic.machine(2))
    assert [n for n, _ in cases] == [1, 2]
    assert sample_cases(cases, 1) == cases[:1]
    assert sample_cases(cases, 2) == cases


@given(st.integers(1, 34))
def test_samples_are_spread_evenly(number):
    cases = all_cases(builtin_machine("knl-7250"))
    samples = sample_cases(cases, number)
    counts = sorted({n for n, _ in cases})
    assert len({n for n, _ in samples}) == number
    assert samples[0] == cases[0]
    if number > 1:
        at = [counts.index(n) for n, _ in samples]
        gaps = [after - before for before, after in pairwise(at)]
        assert at[-1] == len(counts) - 1
        assert max(gaps) - min(gaps) <= 1


def test_too_many_samples():
    with pytest.raises(ValueError, match="3 sample cases of 2 thread counts"):
        sample_cases(all_cases(synthetic.machine(2)), 3)
