"""A convolutional classifier whose training step takes some ten milliseconds."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def classifier() -> keras.Model:
    return keras.Sequential(
        [
            layers.Input((24, 24, 3)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, strides=2, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


def images(examples: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.random((examples, 24, 24, 3), dtype=np.float32), random.integers(0, 10, examples)


def batches(size: int) -> tf.data.Dataset:
    """Of 512 images, without end. One is made ahead: by itself tf.data would make more of them the
    busier the machine is, and memory would be another each time."""
    return tf.data.Dataset.from_tensor_slices(images(512)).repeat().batch(size).prefetch(1)


def step_function(
    model: keras.Model | None = None,
    optimizer: keras.Optimizer | None = None,
    *,
    jit_compile: bool = False,
) -> tf.types.experimental.GenericFunction:
    """A GradientTape training step in a tf.function: (images, labels) -> loss."""
    model = model or classifier()
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = optimizer or keras.optimizers.SGD(0.01)

    @tf.function(jit_compile=jit_compile)
    def train_step(inputs, labels):
        with tf.GradientTape() as tape:
            loss = loss_function(labels, model(inputs, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return train_step
