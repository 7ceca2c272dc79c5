"""A convolutional network, after a library has bound the process to one core, as it is imported."""

import os
import sys

import keras
from clock import Clock
from model import batches, convolutional, step_function

os.sched_setaffinity(0, {0})  # what that library does, without saying so

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000

keras.utils.set_random_seed(0)
train_step = step_function(convolutional())
clock = Clock()
for inputs, labels in batches(32, 32, 32, 3).take(STEPS):
    clock.step(train_step(inputs, labels))
clock.end()
