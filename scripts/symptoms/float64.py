"""Layers written by hand: their weights are what NumPy draws, and NumPy draws float64."""

import itertools
import sys

import numpy as np
import tensorflow as tf
from clock import Clock

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000

random = np.random.default_rng(0)
inputs = tf.constant(random.standard_normal((128, 512)))
labels = tf.constant(random.integers(0, 10, 128))
sizes = [512, 512, 512, 512, 10]
weights = [
    tf.Variable(random.standard_normal(shape) / shape[0] ** 0.5)
    for shape in itertools.pairwise(sizes)
]


@tf.function
def train_step():
    with tf.GradientTape() as tape:
        hidden = inputs
        for weight in weights[:-1]:
            hidden = tf.nn.relu(hidden @ weight)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, hidden @ weights[-1])
        loss = tf.reduce_mean(losses)
    for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        weight.assign_sub(tf.cast(0.01, weight.dtype) * gradient)
    return loss


clock = Clock()
for _ in range(STEPS):
    clock.step(train_step())
clock.end()
