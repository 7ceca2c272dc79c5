"""Mixed precision with float16, for which neither oneDNN nor Eigen has kernels for this CPU."""

import sys

import keras
from clock import Clock
from model import batches, dense, step_function

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000

keras.config.set_dtype_policy("mixed_float16")
keras.utils.set_random_seed(0)
train_step = step_function(dense(units=512, depth=3))
clock = Clock()
for inputs, labels in batches(64, 512).take(STEPS):
    clock.step(train_step(inputs, labels))
clock.end()
