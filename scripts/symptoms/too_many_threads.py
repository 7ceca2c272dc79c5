"""A policy network of 4-120-84-2 units, updated from the steps of 32 environments."""

import sys

import keras
from clock import Clock
from model import batches, step_function

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000

keras.utils.set_random_seed(0)
layers = keras.layers
model = keras.Sequential(
    [
        layers.Input((4,)),
        layers.Dense(120, activation="tanh"),
        layers.Dense(84, activation="tanh"),
        layers.Dense(10),
    ]
)
train_step = step_function(model, keras.optimizers.Adam(1e-3))
clock = Clock()
for inputs, labels in batches(32, 4).take(STEPS):
    clock.step(train_step(inputs, labels))
clock.end()
