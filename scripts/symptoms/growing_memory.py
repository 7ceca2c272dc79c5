"""The predictions of every step are kept, for a figure at the end."""

import sys

import keras
import tensorflow as tf
from clock import Clock
from model import batches, dense

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000

keras.utils.set_random_seed(0)
model = dense(outputs=4096)
optimizer = keras.optimizers.SGD(0.01)
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train_step(inputs, labels):
    with tf.GradientTape() as tape:
        predictions = model(inputs, training=True)
        loss = loss_function(labels, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss, predictions


history = []
clock = Clock()
for inputs, labels in batches(64, 512).take(STEPS):
    loss, predictions = train_step(inputs, labels)
    history.append(predictions)
    clock.step(loss)
clock.end()
