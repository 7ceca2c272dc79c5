"""Large activations: glibc gives their memory back to the system after each use."""

import sys

import keras
import tensorflow as tf
from clock import Clock

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000

tf.random.set_seed(0)
inputs = tf.random.normal((4096, 4096))
scale = tf.Variable(tf.ones((4096,)))
optimizer = keras.optimizers.SGD(0.01)


@tf.function
def train_step():
    with tf.GradientTape() as tape:
        hidden = tf.concat([tf.nn.relu(inputs * scale), tf.nn.relu(-inputs * scale)], 1)
        loss = tf.reduce_mean(tf.transpose(hidden))
    optimizer.apply_gradients([(tape.gradient(loss, scale), scale)])
    return loss


clock = Clock()
for _ in range(STEPS):
    clock.step(train_step())
clock.end()
