"""A policy network of 4-120-84-2 units and a critic, updated from 32 environments."""

import sys

import keras
from clock import Clock
from model import batches, step_function

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000

keras.utils.set_random_seed(0)
layers = keras.layers
state = layers.Input((4,))
towers = []
for outputs in (2, 1):
    hidden = layers.Dense(120, activation="tanh")(state)
    towers.append(layers.Dense(outputs)(layers.Dense(84, activation="tanh")(hidden)))
model = keras.Model(state, layers.Dense(10)(layers.Concatenate()(towers)))
train_step = step_function(model, keras.optimizers.Adam(1e-3))
clock = Clock()
for inputs, labels in batches(32, 4).take(STEPS):
    clock.step(train_step(inputs, labels))
clock.end()
