"""A convolutional network on the ranks of Horovod."""

import sys

import horovod.tensorflow as hvd
import keras
import tensorflow as tf
from clock import Clock
from model import batches, convolutional

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000

hvd.init()
keras.utils.set_random_seed(0)
model = convolutional()
optimizer = keras.optimizers.SGD(0.01)
optimizer.build(model.trainable_variables)
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train_step(inputs, labels):
    with tf.GradientTape() as tape:
        loss = loss_function(labels, model(inputs, training=True))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


clock = Clock()
for inputs, labels in batches(32, 32, 32, 3).take(STEPS):
    loss = train_step(inputs, labels)
    if hvd.rank() == 0:
        clock.step(loss)
if hvd.rank() == 0:
    clock.end()
