"""oneDNN's kernels, where TensorFlow leaves them off."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.keys import Key
from dltune.analysis.parts import portion, unrecorded, working
from dltune.documents.finding import Finding, Gain
from dltune.documents.sections.settings import Choice
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# the families that gain most; where oneDNN is on, TensorFlow rewrites them to _Mkl... ops
REWRITTEN = frozenset(
    {
        *("Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3D"),
        *("Conv3DBackpropFilter", "Conv3DBackpropInput", "DepthwiseConv2dNative"),
        *("MatMul", "BatchMatMul"),
    }
)
SHARE = 0.1  # of the op time
# times as fast as such ops were with it in two jobs; in others they were slower
USUAL, BEST = 1.3, 6.0


@rule(
    "onednn-off",
    "ops",
    summary="TensorFlow runs convolutions and matrix products without oneDNN's kernels.",
    fix="Set TF_ENABLE_ONEDNN_OPTS=1 and compare the speed.",
    frameworks=("tensorflow",),
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost is known from other jobs alone; there were some that it made slower."""
    if seen.profile is None:
        return
    profile = seen.profile.profile
    if any(op.type.startswith("_Mkl") for op in profile.ops):
        return
    plain, _ = portion(profile, _rewritten)
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


def _rewritten(key: Key) -> bool:
    return key.family in REWRITTEN and any(tensor.dtype == "float" for tensor in key.inputs)
