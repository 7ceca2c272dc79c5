"""Inside the job's Python: batch normalization of Keras 3, in training, by TensorFlow's own kernel.

Keras 3 traces the layer as its single additions and multiplications, each of which reads and writes
the whole activation; `FusedBatchNormV3` and its gradient are one pass each (Ioffe and Szegedy,
"Batch Normalization", 2015). Keras 2 used that kernel, and tf_keras does.

Left to Keras: what the kernel cannot do; frozen layers, which need the gradient of their input
alone and were slower; inference, which is mixed; and activations without an extent beside batch and
channels, and channels first without oneDNN, which were slower (docs/explanation/settings.md).
"""

from __future__ import annotations

import functools
import weakref
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _dltune_report import Hooks, Report

_NARROW = ("float16", "bfloat16", "float32")


def batch_norm(report: Report) -> Hooks:
    """Value: "fused"."""
    report.did = "{count} BatchNormalization layers use TensorFlow's fused kernel"
    yield "keras.src.layers.normalization.batch_normalization", lambda m: _fuse(m, report)
    yield "tf_keras", lambda _: report.left("tf_keras", "already uses the fused kernel")


def _fuse(keras: ModuleType, report: Report) -> None:
    """`keras`: the module of Keras that defines the layer."""
    if keras.backend.backend() != "tensorflow":
        report.left("Keras", f"uses the backend {keras.backend.backend()}")
        return
    cls = keras.BatchNormalization
    plain, moments = cls.call, cls._moments
    fused: weakref.WeakSet[Any] = weakref.WeakSet()

    @functools.wraps(plain)
    def call(self: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if training is None or (isinstance(training, (bool, int)) and not training):
            return plain(self, inputs, training=training, mask=mask)
        why = _misfit(self, inputs, training, mask)
        if type(self).call is not call:
            why = "its class overrides call()"
        elif type(self)._moments is not moments:
            why = "its class overrides the computation of statistics"
        if why is None:
            try:
                outputs = _normalized(keras.ops, self, inputs)
            except Exception as error:  # if it is the job's own, Keras has its own words for it
                why = f"{type(error).__name__}: {error}"
            else:
                if self not in fused:
                    fused.add(self)
                    report.acted()
                return outputs
        report.left(self.name, why)
        return plain(self, inputs, training=training, mask=mask)

    cls.call = call


def _misfit(layer: Any, inputs: Any, training: Any, mask: Any) -> str | None:
    """Why the layer is left to Keras in training; None: it fits."""
    import tensorflow as tf

    if not isinstance(training, (bool, int)):
        return "its argument training is a tensor"
    if not layer.trainable:
        return "it is frozen and uses its moving statistics"
    if mask is not None:
        return "it has a mask"
    if getattr(layer, "renorm", False):
        return "renormalizes"
    if (
        getattr(layer, "synchronized", False)
        and tf.distribute.get_strategy().num_replicas_in_sync > 1
    ):
        return "it synchronises its statistics between replicas"
    if not isinstance(inputs, tf.Tensor) or inputs.dtype.name not in _NARROW:
        return f"its input has the type {getattr(inputs, 'dtype', type(inputs).__name__)!r}"
    rank = inputs.shape.rank
    if rank not in (3, 4, 5) or all(
        extent == 1 for at, extent in enumerate(inputs.shape) if at not in (0, layer.axis % rank)
    ):
        return "its input has too few or too many dimensions"
    axis = layer.axis % rank
    if axis not in (1, rank - 1):
        return f"it normalizes axis {axis} of {rank}"
    if axis == 1 and not _onednn():
        return "it uses the channels-first layout, which is not faster without oneDNN"
    return None


def _onednn() -> bool:
    """Whether oneDNN's kernels are on; no where this TensorFlow does not tell."""
    try:
        from tensorflow.python.util._pywrap_util_port import IsMklEnabled
    except ImportError:
        return False
    return bool(IsMklEnabled())


def _normalized(ops: Any, layer: Any, inputs: Any) -> Any:
    """What `BatchNormalization.call` computes and assigns for training.

    Only the order of additions differs. `ops`: those of Keras.
    """
    import tensorflow as tf

    rank = inputs.shape.rank
    axis = layer.axis % rank
    channels = inputs.shape[axis]
    x = ops.cast(inputs, "float32")
    if rank == 3:
        x = tf.expand_dims(x, 3 - axis)
    last = axis == rank - 1
    layouts = ("NDHWC", "NCDHW") if rank == 5 else ("NHWC", "NCHW")
    y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
        x=x,
        scale=ops.cast(layer.gamma, "float32") if layer.scale else tf.ones([channels]),
        offset=ops.cast(layer.beta, "float32") if layer.center else tf.zeros([channels]),
        mean=tf.constant([], tf.float32),
        variance=tf.constant([], tf.float32),
        epsilon=layer.epsilon,
        exponential_avg_factor=1.0,
        data_format=layouts[0 if last else 1],
        is_training=True,
    )
    if rank == 3:
        y = tf.squeeze(y, 3 - axis)
    y = ops.cast(y, layer.compute_dtype)
    # the kernel returns the unbiased variance, n / (n - 1) of Keras'
    size = tf.cast(tf.size(inputs, out_type=tf.int64), tf.float32)
    variance = variance * (1.0 - channels / size)
    kept, added = layer.momentum, 1.0 - layer.momentum
    layer.moving_mean.assign(ops.cast(layer.moving_mean, "float32") * kept + mean * added)
    layer.moving_variance.assign(
        ops.cast(layer.moving_variance, "float32") * kept + variance * added
    )
    return y
