"""A GAN: two step functions that take turns; losses are the discriminator's, the generator's."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from arguments import parser, recording

BATCH = 32

args = parser(__doc__).parse_args()
keras.utils.set_random_seed(0)
generator = keras.Sequential(
    [
        layers.Input((32,)),
        layers.Dense(7 * 7 * 32, activation="relu"),
        layers.Reshape((7, 7, 32)),
        layers.Conv2DTranspose(16, 5, strides=2, padding="same", activation="relu"),
        layers.Conv2DTranspose(1, 5, strides=2, padding="same", activation="tanh"),
    ]
)
discriminator = keras.Sequential(
    [
        layers.Input((28, 28, 1)),
        layers.Conv2D(16, 5, strides=2, padding="same", activation="relu"),
        layers.Conv2D(32, 5, strides=2, padding="same", activation="relu"),
        layers.Flatten(),
        layers.Dense(1),
    ]
)
cross_entropy = keras.losses.BinaryCrossentropy(from_logits=True)
generator_optimizer = keras.optimizers.Adam(1e-4)
discriminator_optimizer = keras.optimizers.Adam(1e-4)


@tf.function
def discriminator_step(images):
    fakes = generator(tf.random.normal((BATCH, 32)), training=True)
    with tf.GradientTape() as tape:
        on_images = discriminator(images, training=True)
        on_fakes = discriminator(fakes, training=True)
        loss = cross_entropy(tf.ones_like(on_images), on_images)
        loss += cross_entropy(tf.zeros_like(on_fakes), on_fakes)
    variables = discriminator.trainable_variables
    gradients = tape.gradient(loss, variables)
    discriminator_optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return loss


@tf.function
def generator_step():
    with tf.GradientTape() as tape:
        fakes = generator(tf.random.normal((BATCH, 32)), training=True)
        on_fakes = discriminator(fakes, training=True)
        loss = cross_entropy(tf.ones_like(on_fakes), on_fakes)
    variables = generator.trainable_variables
    gradients = tape.gradient(loss, variables)
    generator_optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return loss


images = np.random.default_rng(0).uniform(-1, 1, (BATCH, 28, 28, 1)).astype(np.float32)
with recording(args) as record:
    for _ in range(args.steps):
        record(discriminator_step(images))
        record(generator_step())
print("trained")
