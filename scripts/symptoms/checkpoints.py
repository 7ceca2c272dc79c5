"""A checkpoint is written after every fifth step."""

import sys
import tempfile

import keras
import tensorflow as tf
from clock import Clock
from model import batches, dense, step_function

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
EVERY = 5  # steps between two checkpoints

keras.utils.set_random_seed(0)
model = dense(units=1024, depth=4)
optimizer = keras.optimizers.Adam(1e-4)
train_step = step_function(model, optimizer)
clock = Clock()
with tempfile.TemporaryDirectory() as folder:
    saved = tf.train.CheckpointManager(
        tf.train.Checkpoint(model=model, optimizer=optimizer), folder, max_to_keep=2
    )
    for number, (inputs, labels) in enumerate(batches(64, 512).take(STEPS)):
        clock.step(train_step(inputs, labels))
        if number % EVERY == EVERY - 1:
            saved.save()
clock.end()
