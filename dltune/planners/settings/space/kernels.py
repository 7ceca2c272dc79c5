"""Which kernels run: oneDNN's or Eigen's, and whether XLA compiles them.

The variables are those that TensorFlow 2.16 to 2.21 read (tensorflow/core/util: port.cc,
onednn_env_vars.cc, mkl_util.h; tensorflow/compiler/jit: flags.cc).
"""

from __future__ import annotations

from dltune.machine import cpuinfo
from dltune.planners.settings.setting import Circumstances, Means, Setting
from dltune.planners.settings.ways import Ways

# with one of these TensorFlow turns oneDNN on by itself (core/util/port.cc)
_ON_WITH = {"avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16"}

_ONEDNN = Ways(
    "onednn",
    {
        "on": Means(environment={"TF_ENABLE_ONEDNN_OPTS": "1"}),
        "off": Means(environment={"TF_ENABLE_ONEDNN_OPTS": "0"}),
    },
)
_KEPT = Ways(
    "onednn_primitives",
    {"kept": Means(environment={"TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE": "false"})},
)
_CALLER = Ways(
    "onednn_caller",
    {"works": Means(environment={"TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD": "true"})},
)
_XLA = Ways(
    "xla",
    {"auto": Means(joined={"TF_XLA_FLAGS": ("--tf_xla_auto_jit=2", "--tf_xla_cpu_global_jit")})},
)
_JIT = Ways("jit_compile", {"on": Means(hooks={"jit_compile": "on"})})


def _default(_: Circumstances) -> str:
    return "on" if _ON_WITH & cpuinfo.flags() else "off"


def _values(here: Circumstances) -> tuple[str, ...]:
    """The one that is not TensorFlow's default here first."""
    return ("off", "on") if _default(here) == "on" else ("on", "off")


ONEDNN = Setting(
    name="onednn",
    what="oneDNN's kernels instead of Eigen's, which TensorFlow chooses by the CPU's generation",
    kind="rounding",
    source="TensorFlow's release notes 2.9; tensorflow/core/util/port.cc",
    values=_values,
    means=_ONEDNN.means,
    joins=("threads",),
    default=_default,
    changes_graph=True,
)

ONEDNN_PRIMITIVES = Setting(
    name="onednn_primitives",
    what="keep oneDNN's convolution gradients made ready between steps, not made anew in each; "
    "takes the memory of their scratch buffers",
    kind="exact",
    source="tensorflow/core/kernels/mkl/mkl_conv_grad_filter_ops.cc",
    values=_KEPT.values,
    means=_KEPT.means,
    joins=("onednn", "allocator"),
)

ONEDNN_CALLER = Setting(
    name="onednn_caller",
    what="the thread that calls a oneDNN kernel works on it too, instead of waiting for the pool",
    kind="rounding",
    source="tensorflow/core/util/onednn_env_vars.cc; Intel's settings for its model zoo",
    values=_CALLER.values,
    means=_CALLER.means,
    joins=("onednn", "threads"),
)

XLA = Setting(
    name="xla",
    what="XLA compiles clusters of ops, on CPUs too",
    kind="rounding",
    source="TensorFlow's guide to XLA (auto-clustering)",
    values=_XLA.values,
    means=_XLA.means,
    changes_graph=True,
)

JIT_COMPILE = Setting(
    name="jit_compile",
    what="Keras compiles the whole training step by XLA",
    kind="rounding",
    source="Keras' Model.compile(jit_compile=True)",
    values=_JIT.values,
    means=_JIT.means,
    changes_graph=True,
)
