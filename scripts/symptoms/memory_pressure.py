"""Examples in random order from a mapped file that is larger than what the container may hold."""

import sys

import keras
import numpy as np
import tensorflow as tf
from clock import Clock
from model import dense, step_function

FILE = sys.argv[1]
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 50_000
FEATURES, BATCH = 4096, 32

keras.utils.set_random_seed(0)
rows = np.memmap(FILE, np.float32, "r").reshape(-1, FEATURES)
random = np.random.default_rng(0)
train_step = step_function(dense(inputs=FEATURES, depth=2))
clock = Clock()
for _ in range(STEPS):
    inputs = rows[random.integers(0, len(rows), BATCH)]
    labels = random.integers(0, 10, BATCH)
    clock.step(train_step(tf.constant(inputs), tf.constant(labels)))
clock.end()
