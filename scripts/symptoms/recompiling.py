"""A step that XLA compiles, on batches as long as their longest sentence."""

import sys

import keras
import numpy as np
import tensorflow as tf
from clock import Clock
from keras import layers
from model import step_function

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
BATCH = 16

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        layers.Input((None,), dtype="int32"),
        layers.Embedding(1000, 64),
        layers.Conv1D(64, 3, padding="same", activation="relu"),
        layers.GlobalMaxPooling1D(),
        layers.Dense(10),
    ]
)
optimizer = keras.optimizers.SGD(0.01)
optimizer.build(model.trainable_variables)
SIGNATURE = [tf.TensorSpec((BATCH, None), tf.int32), tf.TensorSpec((BATCH,), tf.int32)]
train_step = step_function(model, optimizer, input_signature=SIGNATURE, jit_compile=True)

random = np.random.default_rng(0)
clock = Clock()
for _ in range(STEPS):
    longest = int(random.integers(16, 400))
    length = longest
    words = np.zeros((BATCH, length), np.int32)
    words[:, :longest] = random.integers(1, 1000, (BATCH, longest))
    clock.step(train_step(words, random.integers(0, 10, BATCH).astype(np.int32)))
clock.end()
