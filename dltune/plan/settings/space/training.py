"""Settings of a training step: kernels, compilation, precision, Keras' own work and the input."""

from __future__ import annotations

from dltune.base.errors import UsageError
from dltune.plan.settings.setting import Circumstances, Means, Setting
from dltune.system import kernel_files

# Choice of kernels: oneDNN's or Eigen's, their precision, and compilation by XLA. The variables are
# those that TensorFlow 2.16 to 2.21 read (tensorflow/core/util: port.cc, onednn_env_vars.cc,
# mkl_util.h; tensorflow/compiler/jit: flags.cc).

# with one of these TensorFlow turns oneDNN on by itself (core/util/port.cc)
_ON_WITH = {"avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16"}

_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}  # the last is Arm's


def _default(_: Circumstances) -> str:
    return "on" if _ON_WITH & kernel_files.cpu_flags() else "off"


def _ways(here: Circumstances) -> dict[str, Means]:
    """The one that is not TensorFlow's default here first."""
    values = {"off": "0", "on": "1"} if _default(here) == "on" else {"on": "1", "off": "0"}
    return {way: Means(environment={"TF_ENABLE_ONEDNN_OPTS": v}) for way, v in values.items()}


def _no_bf16(_: Circumstances) -> str | None:
    if _BF16 & kernel_files.cpu_flags():
        return None
    return "this CPU has neither AMX nor AVX512_BF16, so oneDNN would stay in float32"


ONEDNN = Setting(
    name="onednn",
    order=60,
    what="Choose between oneDNN's kernels and Eigen's.",
    helps="Jobs for which TensorFlow's default, chosen by the generation of the CPU, is slower.",
    meanings={"on": "use oneDNN's kernels", "off": "use Eigen's kernels"},
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
    order=50,
    what="Keep oneDNN's prepared convolution gradients between steps instead of preparing them "
    "again in each step. Their scratch buffers take more memory.",
    helps="Models with many convolutions.",
    meanings={"kept": "keep them between steps"},
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
    order=180,
    what="Let the thread that calls a oneDNN kernel work on it instead of waiting for the pool.",
    helps="Jobs with few threads and many short oneDNN ops.",
    meanings={"works": "the calling thread works too"},
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
    order=190,
    what="Compile clusters of ops with XLA, in any script (auto-clustering).",
    helps="Graphs with many small element-wise ops.",
    meanings={"auto": "XLA chooses the clusters"},
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
    order=200,
    what="Compile the model: Keras' whole training step with XLA, or PyTorch's outermost modules "
    "with torch.compile.",
    helps="Long runs of models with many small ops. Compiling takes half a minute or more, once.",
    meanings={"on": "compile the model"},
    kind="rounding",
    source="Keras' Model.compile(jit_compile=True); PyTorch's Module.compile",
    ways=lambda _: {"on": Means(hooks={"jit_compile": "on"})},
    changes_graph=True,
)

# lossy: random numbers like an output are drawn in another order
CHANNELS_LAST = Setting(
    name="channels_last",
    order=30,
    what="Store the weights of convolutions, and the tensors between them, with the channels last "
    "in memory. Random numbers drawn like an output (torch.randn_like) come in another order.",
    helps="Convolutional networks: oneDNN's kernels compute in this layout.",
    meanings={"on": "store the channels last"},
    kind="lossy",
    source="PyTorch's tutorial on the channels-last memory format",
    ways=lambda _: {"on": Means(hooks={"channels_last": "on"})},
    joins=("jit_compile",),
    changes_graph=True,
    framework="pytorch",
)

FUSED_OPTIMIZER = Setting(
    name="fused_optimizer",
    order=20,
    what="Let SGD, Adam, AdamW and Adagrad update all tensors of a parameter group with one op.",
    helps="Models with many small weights, in which the optimizer takes a visible share of a step.",
    meanings={"on": "use the fused op"},
    kind="rounding",
    source="PyTorch's torch.optim.Adam(fused=True), on CPUs since 2.4",
    ways=lambda _: {"on": Means(hooks={"fused_optimizer": "on"})},
    changes_graph=True,
    framework="pytorch",
)

# TensorFlow's own threads do it by themselves (core/platform/denormal.h)
DENORMALS = Setting(
    name="denormals",
    order=210,
    what="Treat denormal numbers (below the smallest normal number) as zero.",
    helps="Jobs whose values decay towards zero: many CPUs are slow with denormal numbers.",
    meanings={"flushed": "flush denormal numbers to zero"},
    kind="rounding",
    source="torch.set_flush_denormal",
    ways=lambda _: {"flushed": Means(hooks={"denormals": "flushed"})},
    framework="pytorch",
)

# another precision than the script asks for: only where the user allows it
ONEDNN_MATH = Setting(
    name="onednn_math",
    order=230,
    what="Let oneDNN multiply float32 values in bfloat16 and add in float32.",
    helps="CPUs with AMX or AVX512_BF16.",
    meanings={"bf16": "multiply in bfloat16"},
    kind="lossy",
    source="oneDNN's guide, floating-point math mode",
    ways=lambda _: {"bf16": Means(environment={"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"})},
    unfit=_no_bf16,
    joins=("onednn",),
    framework="tensorflow",
)

FLOAT32_PRECISION = Setting(
    name="float32_precision",
    order=240,
    what="Let oneDNN multiply PyTorch's float32 values in bfloat16 and add in float32.",
    helps="CPUs with AMX or AVX512_BF16.",
    meanings={"bf16": "multiply in bfloat16"},
    kind="lossy",
    source="torch.set_float32_matmul_precision",
    ways=lambda _: {"bf16": Means(hooks={"float32_precision": "bf16"})},
    unfit=_no_bf16,
    joins=("channels_last",),
    framework="pytorch",
)


# Keras' work around the ops of a training step, and the precision of the step

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


# The input pipeline: what prepares batches next to the steps, how far ahead, and in which order


def _threads(here: Circumstances) -> tuple[str, ...]:
    """One beside the ops, half of the cores, all of them."""
    cores = len(here.machine.cores)
    return tuple(dict.fromkeys(str(n) for n in (1, max(1, cores // 2), cores)))


def _threads_means(value: str, _: Circumstances) -> Means:
    if not (value.isdecimal() and 1 <= int(value) <= 1024):
        raise UsageError(
            f"input_threads={value} is not a number of threads",
            remedy="use a number from 1 to 1024",
        )
    return Means(hooks={"input_threads": value})


INPUT_THREADS = Setting(
    name="input_threads",
    order=120,
    what="Give tf.data a separate thread pool instead of the pool of the ops.",
    helps="Input pipelines that compete with the ops of the step for threads.",
    meanings={"N": "N threads, 1 to 1024"},
    kind="exact",
    source="tf.data.Options.threading.private_threadpool_size",
    offers=_threads,
    reads=_threads_means,
    joins=("threads",),
    framework="tensorflow",
)

_FURTHER = "8"  # batches that each of PyTorch's workers prepares ahead, which does 2 by itself

INPUT_PREFETCH = Setting(
    name="input_prefetch",
    order=110,
    what="Prepare batches ahead while a step runs, in tf.data or in each DataLoader worker.",
    helps="Batches that take different times to prepare.",
    meanings={
        "auto": "TensorFlow: tf.data chooses the number of batches",
        "2": "TensorFlow: 2 batches ahead",
        _FURTHER: f"PyTorch: {_FURTHER} batches ahead in each worker (PyTorch's default: 2)",
    },
    kind="exact",
    source="TensorFlow's guide to tf.data performance (prefetching); "
    "torch.utils.data.DataLoader(prefetch_factor=N)",
    ways=lambda _: {
        ahead: Means(hooks={"input_prefetch": ahead}) for ahead in ("auto", "2", _FURTHER)
    },
    joins=("input_threads", "input_workers"),
    framework_of=lambda value: "pytorch" if value == _FURTHER else "tensorflow",
)


def _workers(here: Circumstances) -> tuple[str, ...]:
    """One beside the ops, one for each core."""
    return tuple(dict.fromkeys(("1", str(len(here.machine.cores)))))


def _workers_means(value: str, _: Circumstances) -> Means:
    if not (value.isdecimal() and 1 <= int(value) <= 1024):
        raise UsageError(
            f"input_workers={value} is not a number of workers",
            remedy="use a number from 1 to 1024",
        )
    return Means(hooks={"input_workers": value})


INPUT_WORKERS = Setting(
    name="input_workers",
    order=100,
    what="Give DataLoaders without workers processes that prepare batches while a step runs.",
    helps="Steps that wait for their data.",
    meanings={"N": "N worker processes, 1 to 1024"},
    kind="rounding",
    source="torch.utils.data.DataLoader(num_workers=N)",
    offers=_workers,
    reads=_workers_means,
    joins=("threads", "input_prefetch"),
    framework="pytorch",
)

INPUT_ORDER = Setting(
    name="input_order",
    order=260,
    what="Let tf.data return examples as soon as they are ready. Batches then hold other examples "
    "than in the script's order.",
    helps="Parallel input pipelines in which slow examples hold up the others.",
    meanings={"any": "return examples in any order"},
    kind="lossy",
    source="tf.data.Options.deterministic",
    ways=lambda _: {"any": Means(hooks={"input_order": "any"})},
    joins=("input_threads",),
    framework="tensorflow",
)
