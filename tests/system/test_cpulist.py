from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.system import kernel_files


@given(st.frozensets(st.integers(0, 300)))
def test_show_and_parse_are_inverse(cpus):
    assert kernel_files.parse_cpulist(kernel_files.format_cpulist(cpus)) == cpus


def test_the_kernels_notation():
    assert kernel_files.parse_cpulist("0-2,8,10-11\n") == {0, 1, 2, 8, 10, 11}
    assert kernel_files.parse_cpulist("\n") == frozenset()
    assert kernel_files.format_cpulist([3, 1, 0, 2, 7]) == "0-3,7"


def test_anything_else_is_refused():
    with pytest.raises(ValueError, match="x"):
        kernel_files.parse_cpulist("0-x")
