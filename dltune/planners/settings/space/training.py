"""What Keras does around the ops of a training step."""

from __future__ import annotations

from dltune.planners.settings.setting import Means, Setting
from dltune.planners.settings.ways import Ways

_BATCH_NORM = Ways("batch_norm", {"fused": Means(hooks={"batch_norm": "fused"})})
_STEPS = Ways(
    "steps_per_execution",
    {number: Means(hooks={"steps_per_execution": number}) for number in ("4", "16")},
)

BATCH_NORM = Setting(
    name="batch_norm",
    what="Keras' batch normalisation by TensorFlow's fused kernel, where Keras 3 traces it op by "
    "op",
    kind="rounding",
    source="keras/src/layers/normalization/batch_normalization.py; tf.raw_ops.FusedBatchNormV3",
    values=_BATCH_NORM.values,
    means=_BATCH_NORM.means,
    joins=("onednn", "allocator"),
)

STEPS_PER_EXECUTION = Setting(
    name="steps_per_execution",
    what="Keras' fit runs several steps at a time inside TensorFlow, and its callbacks once for "
    "them",
    kind="exact",
    source="Keras' Model.compile(steps_per_execution=N)",
    values=_STEPS.values,
    means=_STEPS.means,
    joins=("jit_compile",),
)
