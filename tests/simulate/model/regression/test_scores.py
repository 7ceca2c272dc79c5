"""Accuracy and R2 as the paper defines them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import mean_absolute_percentage_error, r2_score

from dltune.simulate.regression import accuracy, scores

TIMES = st.lists(st.tuples(st.floats(1e-6, 10), st.floats(-1, 10)), min_size=2, max_size=20)


def test_by_hand():
    found = scores([1.0, 3.0], [2.0, 2.0])
    assert found.accuracy == 0.5
    assert found.ops == 2
    assert scores([1.0], [1.0]) == (1.0, 1.0, 1)
    with pytest.raises(ValueError, match="no measured time"):
        scores([], [])


def test_accuracy_is_one_less_the_mean_relative_error():
    assert accuracy([2.2, 3.0], [2.0, 4.0]) == pytest.approx(1 - (0.1 + 0.25) / 2)
    with pytest.raises(ValueError, match="no measured time"):
        accuracy([], [])


@given(TIMES)
def test_as_scikit_learn_has_them(pairs):
    measured, predicted = (list(values) for values in zip(*pairs, strict=True))
    found = scores(predicted, measured)
    expected = 1 - mean_absolute_percentage_error(measured, predicted)
    assert found.accuracy == pytest.approx(expected, rel=1e-6, abs=1e-9)
    if np.var(measured) > 1e-6:
        assert found.r2 == pytest.approx(r2_score(measured, predicted), rel=1e-6, abs=1e-9)
