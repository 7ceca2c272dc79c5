"""oneDNN's kernels, if TensorFlow does not use them."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.keys import Key
from dltune.analysis.step_parts import portion, unrecorded, working
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.settings import Choice

# the families that gain most; with oneDNN, TensorFlow rewrites their ops to _Mkl... ops
REWRITTEN = frozenset(
    {
        *("Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3D"),
        *("Conv3DBackpropFilter", "Conv3DBackpropInput", "DepthwiseConv2dNative"),
        *("MatMul", "BatchMatMul"),
    }
)
SHARE = 0.1  # of the op time
# speed of such ops with oneDNN, relative to without, in two jobs; in other jobs it was lower
USUAL, BEST = 1.3, 6.0


@rule(
    "onednn-off",
    "ops",
    summary="TensorFlow runs convolutions and matrix products without oneDNN's kernels.",
    fix="Set TF_ENABLE_ONEDNN_OPTS=1 and compare the speed.",
    frameworks=("tensorflow",),
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find ops without oneDNN. The cost is known only from other jobs; some became slower."""
    if evidence.profile is None:
        return
    profile = evidence.profile.profile
    if any(op.type.startswith("_Mkl") for op in profile.ops):
        return
    plain, _ = portion(profile, _is_rewritten)
    if plain < SHARE:
        return
    share = plain * working(profile)
    cost = share * (1 - 1 / USUAL)
    yield Finding(
        title=f"TensorFlow runs without oneDNN, which has kernels for {plain:.0%} of the op time "
        "(convolutions and matrix products)",
        evidence=f"in other jobs, such ops were {USUAL}x to {BEST:.0f}x as fast with oneDNN, and "
        "in a few jobs slower",
        fix="set TF_ENABLE_ONEDNN_OPTS=1 and compare the speed",
        seconds=cost * unrecorded(profile),
        share=cost,
        gain=Gain(0.0, share * (1 - 1 / BEST)),
        confidence="rule",
        apply=(Choice("onednn", "on"),),
        try_next=("onednn",),
    )


def _is_rewritten(key: Key) -> bool:
    return key.family in REWRITTEN and any(tensor.dtype == "float" for tensor in key.inputs)
