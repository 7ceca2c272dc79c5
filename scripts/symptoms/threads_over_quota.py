"""A dense network; its threads are set by the environment, for a larger machine than this."""

import sys

import keras
from clock import Clock
from model import batches, dense, step_function

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000

keras.utils.set_random_seed(0)
train_step = step_function(dense())
clock = Clock()
for inputs, labels in batches(64, 512).take(STEPS):
    clock.step(train_step(inputs, labels))
clock.end()
