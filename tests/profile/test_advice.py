from __future__ import annotations

import platform

import pytest

from dltune.documents.profile import Op
from dltune.profile.advice import notes

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="oneDNN's rewrite is x86's")


def op(kind: str, seconds: float, first: str = "float[8,8,8,8]") -> Op:
    return Op(f"{kind}({first})", kind, (first,), 1, 0, seconds, ())


def test_heavy_convolutions_without_onednn_are_noted():
    (note,) = notes([op("Conv2D", 0.5), op("Mul", 0.5)])
    assert "50%" in note
    assert "TF_ENABLE_ONEDNN_OPTS=1" in note


def test_nothing_is_noted_where_onednn_rewrote_the_graph():
    assert not notes([op("_MklNativeConv2D", 0.5), op("MatMul", 0.5)])


def test_nothing_is_noted_where_it_would_not_matter():
    assert not notes([op("Conv2D", 0.01), op("Mul", 1.0)])
    assert not notes([op("Conv2D", 1.0, "double[8,8,8,8]")])
    assert not notes([])
