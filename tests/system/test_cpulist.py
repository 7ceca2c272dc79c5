from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.system import cpulist


@given(st.frozensets(st.integers(0, 300)))
def test_show_and_parse_are_inverse(cpus):
    assert cpulist.parse(cpulist.show(cpus)) == cpus


def test_the_kernels_notation():
    assert cpulist.parse("0-2,8,10-11\n") == {0, 1, 2, 8, 10, 11}
    assert cpulist.parse("\n") == frozenset()
    assert cpulist.show([3, 1, 0, 2, 7]) == "0-3,7"


def test_anything_else_is_refused():
    with pytest.raises(ValueError, match="x"):
        cpulist.parse("0-x")
