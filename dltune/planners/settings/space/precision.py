"""Other precision than the script asks for: only where the user allows it."""

from __future__ import annotations

from dltune.machine import cpuinfo
from dltune.planners.settings.setting import Circumstances, Means, Setting
from dltune.planners.settings.ways import Ways

_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}  # the last is Arm's

_PRECISION = Ways("precision", {"mixed_bfloat16": Means(hooks={"precision": "mixed_bfloat16"})})
_MATH = Ways("onednn_math", {"bf16": Means(environment={"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"})})


def _no_bf16(_: Circumstances) -> str | None:
    if _BF16 & cpuinfo.flags():
        return None
    return "this CPU has neither AMX nor AVX512_BF16, so oneDNN would go on in float32"


PRECISION = Setting(
    name="precision",
    what="Keras computes in bfloat16 and keeps its variables in float32",
    kind="lossy",
    source="Keras' guide to mixed precision",
    values=_PRECISION.values,
    means=_PRECISION.means,
    joins=("batch_norm",),
    changes_graph=True,
)

ONEDNN_MATH = Setting(
    name="onednn_math",
    what="oneDNN multiplies float32 in bfloat16 and adds in float32",
    kind="lossy",
    source="oneDNN's guide, floating-point math mode",
    values=_MATH.values,
    means=_MATH.means,
    unfit=_no_bf16,
    joins=("onednn",),
)
