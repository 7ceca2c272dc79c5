"""Student's quantile: scipy is the oracle."""

from __future__ import annotations

import pytest

from dltune.stats import HIGHEST, t_quantile

FREEDOMS = (*range(1, 41), 50, 99, 100, 365, 1000, 1001, 20_000)
# what is not within: the tail, in which scipy is more precise than at a level near 1
TAILS = (0.49, 0.4, 0.25, 0.1, 0.05, 0.025, 0.01, 0.005, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_it_is_scipy_s(freedom: int) -> None:
    t = pytest.importorskip("scipy.stats").t
    for tail in TAILS:
        assert t_quantile(1 - tail, freedom) == pytest.approx(-t.ppf(tail, freedom), rel=1e-7)
    assert t_quantile(HIGHEST, freedom) == pytest.approx(-t.ppf(1e-9, freedom), rel=1e-6)


def test_what_tables_say() -> None:
    assert t_quantile(0.975, 1) == pytest.approx(12.706205, abs=1e-6)
    assert t_quantile(0.975, 2) == pytest.approx(4.3026527, abs=1e-6)
    assert t_quantile(0.975, 4) == pytest.approx(2.7764451, abs=1e-6)
    assert t_quantile(0.5, 7) == 0.0


@pytest.mark.parametrize(
    ("level", "freedom", "fault"),
    [
        (0.49, 3, "level must be between"),
        (1.0, 3, "level must be between"),
        (float("nan"), 3, "level must be between"),
        (0.9, 0, "freedom must be at least 1, got 0"),
    ],
)
def test_what_has_no_quantile_is_refused(level: float, freedom: int, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        t_quantile(level, freedom)
