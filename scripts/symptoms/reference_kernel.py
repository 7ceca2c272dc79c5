"""Mixed precision as for a GPU: float16 convolutions fall back to Eigen, number by number."""

import sys

import keras
from clock import Clock
from model import batches, convolutional, step_function

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000

keras.config.set_dtype_policy("mixed_float16")
keras.utils.set_random_seed(0)
train_step = step_function(convolutional(size=16, filters=16))
clock = Clock()
for inputs, labels in batches(32, 16, 16, 3).take(STEPS):
    clock.step(train_step(inputs, labels))
clock.end()
