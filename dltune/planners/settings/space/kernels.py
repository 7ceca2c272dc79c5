"""Which kernels run: oneDNN's or Eigen's, in which precision, and whether XLA compiles them.

The variables are those that TensorFlow 2.16 to 2.21 read (tensorflow/core/util: port.cc,
onednn_env_vars.cc, mkl_util.h; tensorflow/compiler/jit: flags.cc).
"""

from __future__ import annotations

from dltune.machine import cpuinfo
from dltune.planners.settings.setting import Circumstances, Means, Setting

# with one of these TensorFlow turns oneDNN on by itself (core/util/port.cc)
_ON_WITH = {"avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16"}

_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}  # the last is Arm's


def _default(_: Circumstances) -> str:
    return "on" if _ON_WITH & cpuinfo.flags() else "off"


def _ways(here: Circumstances) -> dict[str, Means]:
    """The one that is not TensorFlow's default here first."""
    values = {"off": "0", "on": "1"} if _default(here) == "on" else {"on": "1", "off": "0"}
    return {way: Means(environment={"TF_ENABLE_ONEDNN_OPTS": v}) for way, v in values.items()}


def _no_bf16(_: Circumstances) -> str | None:
    if _BF16 & cpuinfo.flags():
        return None
    return "this CPU has neither AMX nor AVX512_BF16, so oneDNN would go on in float32"


ONEDNN = Setting(
    name="onednn",
    what="oneDNN's kernels instead of Eigen's, which TensorFlow chooses by the CPU's generation",
    kind="rounding",
    source="TensorFlow's release notes 2.9; tensorflow/core/util/port.cc",
    ways=_ways,
    joins=("threads",),
    default=_default,
    changes_graph=True,
    framework="tensorflow",
)

ONEDNN_PRIMITIVES = Setting(
    name="onednn_primitives",
    what="keep oneDNN's convolution gradients made ready between steps, not made anew in each; "
    "takes the memory of their scratch buffers",
    kind="exact",
    source="tensorflow/core/kernels/mkl/mkl_conv_grad_filter_ops.cc",
    ways=lambda _: {
        "kept": Means(environment={"TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE": "false"}),
    },
    joins=("onednn", "allocator"),
    framework="tensorflow",
)

ONEDNN_CALLER = Setting(
    name="onednn_caller",
    what="the thread that calls a oneDNN kernel works on it too, instead of waiting for the pool",
    kind="rounding",
    source="tensorflow/core/util/onednn_env_vars.cc; Intel's settings for its model zoo",
    ways=lambda _: {
        "works": Means(environment={"TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD": "true"}),
    },
    joins=("onednn", "threads"),
    framework="tensorflow",
)

XLA = Setting(
    name="xla",
    what="XLA compiles clusters of ops, on CPUs too",
    kind="rounding",
    source="TensorFlow's guide to XLA (auto-clustering)",
    ways=lambda _: {
        "auto": Means(joined={"TF_XLA_FLAGS": ("--tf_xla_auto_jit=2", "--tf_xla_cpu_global_jit")}),
    },
    changes_graph=True,
    framework="tensorflow",
)

JIT_COMPILE = Setting(
    name="jit_compile",
    what="the framework's compiler has the model: XLA Keras' whole training step, torch.compile "
    "the outermost modules",
    kind="rounding",
    source="Keras' Model.compile(jit_compile=True); PyTorch's Module.compile",
    ways=lambda _: {"on": Means(hooks={"jit_compile": "on"})},
    changes_graph=True,
)

# lossy: random numbers like an output are drawn in another order
CHANNELS_LAST = Setting(
    name="channels_last",
    what="convolutions keep their channels last in memory, as oneDNN's kernels want them, and so "
    "does what lies between them",
    kind="lossy",
    source="PyTorch's tutorial on the channels-last memory format",
    ways=lambda _: {"on": Means(hooks={"channels_last": "on"})},
    joins=("jit_compile",),
    changes_graph=True,
    framework="pytorch",
)

FUSED_OPTIMIZER = Setting(
    name="fused_optimizer",
    what="PyTorch's SGD, Adam, AdamW and Adagrad update all tensors of a group by one op",
    kind="rounding",
    source="PyTorch's torch.optim.Adam(fused=True), on CPUs since 2.4",
    ways=lambda _: {"on": Means(hooks={"fused_optimizer": "on"})},
    changes_graph=True,
    framework="pytorch",
)

# TensorFlow's own threads do it by themselves (core/platform/denormal.h)
DENORMALS = Setting(
    name="denormals",
    what="numbers below the smallest normal one are taken for zero, which some CPUs compute faster",
    kind="rounding",
    source="torch.set_flush_denormal",
    ways=lambda _: {"flushed": Means(hooks={"denormals": "flushed"})},
    framework="pytorch",
)

# another precision than the script asks for: only where the user allows it
ONEDNN_MATH = Setting(
    name="onednn_math",
    what="oneDNN multiplies float32 in bfloat16 and adds in float32",
    kind="lossy",
    source="oneDNN's guide, floating-point math mode",
    ways=lambda _: {"bf16": Means(environment={"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"})},
    unfit=_no_bf16,
    joins=("onednn",),
    framework="tensorflow",
)

FLOAT32_PRECISION = Setting(
    name="float32_precision",
    what="oneDNN multiplies PyTorch's float32 in bfloat16 and adds in float32",
    kind="lossy",
    source="torch.set_float32_matmul_precision",
    ways=lambda _: {"bf16": Means(hooks={"float32_precision": "bf16"})},
    unfit=_no_bf16,
    joins=("channels_last",),
    framework="pytorch",
)
