"""Features that have faded to denormal numbers, made by NumPy between the steps."""

import sys

import keras
import numpy as np
import tensorflow as tf
from clock import Clock
from model import dense, step_function

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000

keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
trace = random.random((256, 4096), dtype=np.float32) * np.float32(1e-39)
labels = tf.constant(random.integers(0, 10, 256))
train_step = step_function(dense(units=64, depth=2, inputs=4096))
clock = Clock()
for _ in range(STEPS):
    for _ in range(4):
        trace = trace * np.float32(0.999) + np.float32(1e-42)
    clock.step(train_step(tf.constant(trace), labels))
clock.end()
