"""Traces that fade step by step: by now they are denormal numbers, and NumPy takes their roots."""

import sys

import keras
import numpy as np
import tensorflow as tf
from clock import Clock
from model import dense, step_function

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
TRACES, UNITS, BATCH = 8, 4096, 128
FADED = np.float32(1e-39)

keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
traces = random.random((TRACES, BATCH, UNITS), dtype=np.float32) * FADED
labels = tf.constant(random.integers(0, 10, BATCH))
train_step = step_function(dense(units=64, depth=2, inputs=UNITS))
clock = Clock()
for _ in range(STEPS):
    traces = traces * np.float32(0.9999)
    inputs = np.sqrt(traces).sum(0)
    clock.step(train_step(tf.constant(inputs), labels))
clock.end()
