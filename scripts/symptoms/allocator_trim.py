"""Large activations, and a generator for the inputs: TensorFlow's op for it tells glibc to trim.

That ends glibc's own adaption: what is larger than 128 KiB is mapped, touched and unmapped anew for
each use (tensorflow/core/kernels/data/generator_dataset_op.cc).
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from clock import Clock

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
UNITS = 2048

random = np.random.default_rng(0)
rows = random.standard_normal((1024, UNITS), dtype=np.float32)


def batches():
    while True:
        yield rows


scale = tf.Variable(tf.ones((UNITS,)))
optimizer = keras.optimizers.SGD(0.01)


@tf.function
def train_step(inputs):
    with tf.GradientTape() as tape:
        hidden = inputs * scale
        for _ in range(8):
            hidden = tf.nn.relu(hidden) + 0.1 * hidden
        loss = tf.reduce_mean(hidden)
    optimizer.apply_gradients([(tape.gradient(loss, scale), scale)])
    return loss


dataset = tf.data.Dataset.from_generator(
    batches, output_signature=tf.TensorSpec(rows.shape, tf.float32)
)
clock = Clock()
for inputs in dataset.prefetch(2).take(STEPS):
    clock.step(train_step(inputs))
clock.end()
