from __future__ import annotations

import pytest

from dltune.simulate import machine_transfer

# Table II: milliseconds at the best count, and what 68 threads lose; w as found by
# scripts/research/fit_knl.py
TABLE_II = [
    ("Conv2DBackpropFilter", 109, 7.2, 0.173),
    ("Conv2DBackpropFilter", 187, 11.1, 0.102),
    ("Conv2DBackpropFilter", 454, 20.3, 0.0),
    ("Conv2DBackpropInput", 122, 5.8, 0.098),
    ("Conv2DBackpropInput", 228, 8.7, 0.023),
    ("Conv2DBackpropInput", 751, 19.6, 0.0),
    ("Conv2D", 100, 4.7, 0.111),
    ("Conv2D", 197, 7.4, 0.035),
    ("Conv2D", 565, 14.8, 0.02),
]


@pytest.mark.parametrize(("family", "work", "best", "loss"), TABLE_II)
def test_the_law_gives_table_ii(family: str, work: float, best: float, loss: float) -> None:
    law = machine_transfer.FAMILIES[family]
    times = [law.milliseconds(work, n) for n in range(1, 69)]
    assert min(times) == pytest.approx(best, rel=0.05)
    assert times[-1] / min(times) - 1 == pytest.approx(loss, abs=0.025)


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("_MklNativeConv2DBackpropFilterWithBias", "Conv2DBackpropFilter"),
        ("_MklNativeFusedConv2D", "Conv2D"),
        ("_FusedMatMul", "MatMul"),
        ("FusedBatchNormGradV3", "FusedBatchNormGrad"),
        ("AddV2", "Add"),
        ("ResourceApplyAdam", "ApplyAdam"),
        ("Sum", "Sum"),
    ],
)
def test_today_s_kernels_go_by_the_paper_s_names(kind: str, family: str) -> None:
    assert machine_transfer.family(kind) == family


def test_only_ops_with_mkl_kernels_are_controlled() -> None:
    assert machine_transfer.controlled("_MklNativeConv2D")
    assert machine_transfer.controlled("MatMul")
    assert not machine_transfer.controlled("Tile")
    assert not machine_transfer.controlled("ResourceApplyAdam")


def test_no_op_takes_longer_than_on_one_thread() -> None:
    curve = machine_transfer.knl_curve("Mul", 1e-7, [(n, "spread") for n in range(1, 69)])
    assert max(curve.seconds(n, "spread") for n in range(1, 69)) == curve.serial
