"""A step that is told its number as a Python integer: each number is another graph."""

import sys

import keras
import tensorflow as tf
from clock import Clock
from model import batches, dense

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000

keras.utils.set_random_seed(0)
model = dense(depth=3)
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train_step(inputs, labels, number):
    with tf.GradientTape() as tape:
        loss = loss_function(labels, model(inputs, training=True))
    variables = model.trainable_variables
    rate = 0.01 / (1.0 + 0.001 * tf.cast(number, tf.float32))
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(rate * gradient)
    return loss


clock = Clock()
for number, (inputs, labels) in enumerate(batches(64, 512).take(STEPS)):
    clock.step(train_step(inputs, labels, number))
clock.end()
