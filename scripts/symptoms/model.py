"""Networks that several of the jobs train, and their step as a tf.function."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def dense(units=512, depth=4, inputs=512, outputs=10):
    hidden = [layers.Dense(units, activation="relu") for _ in range(depth)]
    return keras.Sequential([layers.Input((inputs,)), *hidden, layers.Dense(outputs)])


def convolutional(size=32, filters=32):
    return keras.Sequential(
        [
            layers.Input((size, size, 3)),
            layers.Conv2D(filters, 3, padding="same", activation="relu"),
            layers.Conv2D(filters, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(2 * filters, 3, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )


def step_function(model, optimizer=None, **options):
    """(inputs, labels) -> loss. `options`: of its tf.function."""
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = optimizer or keras.optimizers.SGD(0.01)

    @tf.function(**options)
    def train_step(inputs, labels):
        with tf.GradientTape() as tape:
            loss = loss_function(labels, model(inputs, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return train_step


def examples(count, *shape):
    """Random inputs and labels of ten classes, always the same ones."""
    random = np.random.default_rng(0)
    return random.random((count, *shape), dtype=np.float32), random.integers(0, 10, count)


def batches(batch, *shape):
    """An input pipeline with nothing wrong."""
    data = tf.data.Dataset.from_tensor_slices(examples(16 * batch, *shape))
    return data.repeat().batch(batch, drop_remainder=True).prefetch(2)
