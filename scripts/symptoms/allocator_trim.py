"""Large activations, with the system's allocator: glibc gives their memory back after each use."""

import sys

import keras
import tensorflow as tf
from clock import Clock

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000

tf.random.set_seed(0)
inputs = tf.random.normal((1024, 2048))
scale = tf.Variable(tf.ones((2048,)))
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


clock = Clock()
for _ in range(STEPS):
    clock.step(train_step(inputs))
clock.end()
