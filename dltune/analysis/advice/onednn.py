"""oneDNN's kernels, where TensorFlow leaves them off."""

from __future__ import annotations

from dltune.analysis.advice.advice import Advice
from dltune.analysis.figures import Analysis
from dltune.analysis.keys import parse

# the families that gain most; where oneDNN is on, TensorFlow rewrites them to _Mkl... ops
REWRITTEN = frozenset(
    {
        *("Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3D"),
        *("Conv3DBackpropFilter", "Conv3DBackpropInput", "DepthwiseConv2dNative"),
        *("MatMul", "BatchMatMul"),
    }
)
# of the op time
SHARE = 0.1


def onednn(analysis: Analysis) -> Advice | None:
    """No gain is told: it was 1.3x here and 6x there, and less than 1x elsewhere."""
    ops = analysis.profile.ops
    if any(op.type.startswith("_Mkl") for op in ops):
        return None
    plain = total = 0.0
    for op in ops:
        seconds = (op.own or 0.0) * op.count
        total += seconds
        key = parse(op)
        if key and key.family in REWRITTEN and any(t.dtype == "float" for t in key.inputs):
            plain += seconds
    if total <= 0 or plain / total < SHARE:
        return None
    return Advice(
        ("onednn",),
        f"oneDNN's kernels are off, and {plain / total:.0%} of the op time is in convolutions and "
        "matrix products, for which it has some: try the job with TF_ENABLE_ONEDNN_OPTS=1",
        None,
    )
