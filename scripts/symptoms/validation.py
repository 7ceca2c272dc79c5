"""Keras `fit`: short epochs, each followed by a look at five times as many examples."""

import sys

import keras
import tensorflow as tf
from clock import Clock
from model import convolutional, examples

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 500
AFTER = 1  # epochs between two validations
BATCH, PER_EPOCH, VALIDATED = 32, 20, 100

keras.utils.set_random_seed(0)
model = convolutional(filters=16)
model.compile(
    keras.optimizers.SGD(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
)
images, labels = examples(BATCH * (PER_EPOCH + VALIDATED), 32, 32, 3)
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH).prefetch(2)
clock = Clock()
told = keras.callbacks.LambdaCallback(
    on_epoch_end=lambda _, logs: clock.step(logs["loss"], PER_EPOCH)
)
model.fit(
    dataset.take(PER_EPOCH),
    epochs=EPOCHS,
    validation_data=dataset.skip(PER_EPOCH),
    validation_freq=AFTER,
    verbose=0,
    callbacks=[told],
)
clock.end()
