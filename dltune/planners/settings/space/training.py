"""What Keras does around the ops of a training step, and in which precision."""

from __future__ import annotations

from dltune.errors import UsageError
from dltune.planners.settings.setting import Circumstances, Means, Setting

BATCH_NORM = Setting(
    name="batch_norm",
    what="Keras' batch normalisation by TensorFlow's fused kernel, where Keras 3 traces it op by "
    "op",
    kind="rounding",
    source="keras/src/layers/normalization/batch_normalization.py; tf.raw_ops.FusedBatchNormV3",
    ways=lambda _: {"fused": Means(hooks={"batch_norm": "fused"})},
    joins=("onednn", "allocator"),
    changes_graph=True,
    framework="tensorflow",
)


def _steps(value: str, _: Circumstances) -> Means:
    if not (value.isdecimal() and 2 <= int(value) <= 1024):
        raise UsageError(f"steps_per_execution={value}: not a number of steps, 2 or more")
    return Means(hooks={"steps_per_execution": value})


STEPS_PER_EXECUTION = Setting(
    name="steps_per_execution",
    what="Keras' fit runs several steps at a time inside TensorFlow, and its callbacks once for "
    "them",
    kind="exact",
    source="Keras' Model.compile(steps_per_execution=N)",
    offers=lambda _: ("4", "16"),
    reads=_steps,
    joins=("jit_compile",),
    changes_graph=True,
    framework="tensorflow",
)

# another precision than the script asks for: only where the user allows it
PRECISION = Setting(
    name="precision",
    what="products and convolutions are computed in bfloat16, variables stay in float32: Keras' "
    "policy, or PyTorch's autocast",
    kind="lossy",
    source="Keras' guide to mixed precision; PyTorch's automatic mixed precision",
    ways=lambda _: {"mixed_bfloat16": Means(hooks={"precision": "mixed_bfloat16"})},
    joins=("batch_norm", "channels_last"),
    changes_graph=True,
)
