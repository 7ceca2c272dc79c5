"""Train ResNet-20 (He et al., 2016) on synthetic 32x32 images, with Keras on TensorFlow.

The script was written for a host with 64 cores. Its mistake is THREADS below: on fewer cores, the
threads wait for one another. It does not import dltune.
"""

import argparse
import os
import time

# TensorFlow leaves oneDNN's kernels off by default on some CPUs, such as AMD's with AVX2 only
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

THREADS = 64  # the mistake: right for a host with 64 cores, wrong for a container with 2

tf.config.threading.set_intra_op_parallelism_threads(THREADS)
tf.config.threading.set_inter_op_parallelism_threads(THREADS)

EXAMPLES, CLASSES = 2048, 10
# blocks of each stage, and its filters
STAGES = ((3, 16), (3, 32), (3, 64))


def normed(inputs, filters: int, window: int, strides: int = 1):
    outputs = layers.Conv2D(filters, window, strides, padding="same", use_bias=False)(inputs)
    return layers.BatchNormalization()(outputs)


def resnet20() -> keras.Model:
    inputs = layers.Input((32, 32, 3))
    hidden = layers.ReLU()(normed(inputs, 16, 3))
    for blocks, filters in STAGES:
        for block in range(blocks):
            strides = 2 if filters > 16 and block == 0 else 1
            inner = layers.ReLU()(normed(hidden, filters, 3, strides))
            shortcut = normed(hidden, filters, 1, strides) if strides > 1 else hidden
            hidden = layers.ReLU()(layers.Add()([normed(inner, filters, 3), shortcut]))
    return keras.Model(inputs, layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(hidden)))


class Speed(keras.callbacks.Callback):
    """Prints the speed every two seconds, and stops the training after `seconds`."""

    def __init__(self, batch: int, seconds: float) -> None:
        super().__init__()
        self.batch, self.end = batch, time.perf_counter() + seconds
        self.steps, self.since = 0, time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self.steps += 1
        elapsed = time.perf_counter() - self.since
        if elapsed >= 2.0:
            loss = (logs or {}).get("loss", 0.0)
            samples = self.steps * self.batch / elapsed
            print(f"step {batch + 1}  loss {loss:.4f}  {samples:.1f} samples/s", flush=True)
            self.steps, self.since = 0, time.perf_counter()
            if self.since > self.end:
                self.model.stop_training = True


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--seconds", type=float, default=3600.0, help="train for so long")
args = parser.parse_args()

keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
images = random.random((EXAMPLES, 32, 32, 3), dtype=np.float32)
labels = random.integers(0, CLASSES, EXAMPLES)
data = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().batch(args.batch).prefetch(2)

model = resnet20()
model.compile(
    optimizer=keras.optimizers.SGD(0.1, momentum=0.9),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
model.fit(data, epochs=1, verbose=0, shuffle=False, callbacks=[Speed(args.batch, args.seconds)])
