"""Metrics that are updated and read in Python after each step."""

import sys

import keras
import tensorflow as tf
from clock import Clock
from model import batches, dense

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
EVERY = 1  # steps between two looks at the metrics

keras.utils.set_random_seed(0)
model = dense(depth=2)
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.SGD(0.01)


@tf.function
def train_step(inputs, labels):
    with tf.GradientTape() as tape:
        predictions = model(inputs, training=True)
        loss = loss_function(labels, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss, predictions


clock = Clock()
for number, (inputs, labels) in enumerate(batches(64, 512).take(STEPS)):
    loss, predictions = train_step(inputs, labels)
    if number % EVERY == 0:
        hits = (predictions.numpy().argmax(1) == labels.numpy()).mean()
        norms = [tf.norm(variable).numpy() for variable in model.trainable_variables]
        best = tf.nn.softmax(predictions).numpy().max(1).mean()
    clock.step(loss)
clock.end()
