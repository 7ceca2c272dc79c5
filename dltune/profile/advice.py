"""What a captured graph shows at once, told as notes of the profile."""

from __future__ import annotations

import platform
from collections.abc import Collection

from dltune.documents.profile import Op

# the ops that gain most from oneDNN; where it is on, TensorFlow rewrites them to _Mkl... ops
REWRITTEN = ("Conv2D", "DepthwiseConv2d", "Conv3D", "MatMul", "BatchMatMul", "FusedConv2D")
HEAVY = 0.1


def notes(ops: Collection[Op]) -> list[str]:
    """One sentence for each thing worth trying before any tuning."""
    found = []
    total = sum(_seconds(op) for op in ops)
    plain = sum(
        _seconds(op)
        for op in ops
        if op.type.lstrip("_").startswith(REWRITTEN) and op.inputs and "float[" in op.inputs[0]
    )
    rewritten = any(op.type.startswith("_Mkl") for op in ops)
    if not rewritten and total > 0 and plain / total >= HEAVY and platform.machine() == "x86_64":
        found.append(
            f"oneDNN's kernels are off, and {plain / total:.0%} of the op time is in convolutions "
            "and matrix products that it has: try the job with TF_ENABLE_ONEDNN_OPTS=1"
        )
    return found


def _seconds(op: Op) -> float:
    return (op.own or 0.0) * op.count
