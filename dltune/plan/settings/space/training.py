"""What Keras does around the ops of a training step, and in which precision."""

from __future__ import annotations

from dltune.base.errors import UsageError
from dltune.plan.settings.setting import Circumstances, Means, Setting

BATCH_NORM = Setting(
    name="batch_norm",
    order=10,
    what="Compute Keras' batch normalisation with TensorFlow's fused kernel, not op by op.",
    helps="Keras 3 models with many batch normalisation layers, such as ResNets.",
    meanings={"fused": "use the fused kernel in training"},
    kind="rounding",
    source="keras/src/layers/normalization/batch_normalization.py; tf.raw_ops.FusedBatchNormV3",
    ways=lambda _: {"fused": Means(hooks={"batch_norm": "fused"})},
    joins=("onednn", "allocator"),
    changes_graph=True,
    framework="tensorflow",
)


def _steps(value: str, _: Circumstances) -> Means:
    if not (value.isdecimal() and 2 <= int(value) <= 1024):
        raise UsageError(
            f"steps_per_execution={value} is not a number of steps",
            remedy="use a number from 2 to 1024",
        )
    return Means(hooks={"steps_per_execution": value})


STEPS_PER_EXECUTION = Setting(
    name="steps_per_execution",
    order=130,
    what="Let Keras' fit run several steps at a time inside TensorFlow, and its callbacks once for "
    "all of them.",
    helps="Short steps, in which Python takes a visible share of the time.",
    meanings={"N": "up to N steps at a time, 2 to 1024"},
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
    order=250,
    what="Compute products and convolutions in bfloat16 and keep variables in float32, by Keras' "
    "policy or PyTorch's autocast.",
    helps="CPUs with AMX or AVX512_BF16.",
    meanings={"mixed_bfloat16": "compute in bfloat16"},
    kind="lossy",
    source="Keras' guide to mixed precision; PyTorch's automatic mixed precision",
    ways=lambda _: {"mixed_bfloat16": Means(hooks={"precision": "mixed_bfloat16"})},
    joins=("batch_norm", "channels_last"),
    changes_graph=True,
)
