"""Train a DCGAN on synthetic MNIST-shaped images (28x28x1): two steps, taking turns."""

import argparse
import os
import time

# TensorFlow leaves oneDNN's kernels off by default on some CPUs, such as AMD's with AVX2 only
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

EXAMPLES = 4096
NOISE = 100


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    parser.add_argument(
        "--losses",
        metavar="FILE",
        help="write every step's losses, one a line: the discriminator's, then the generator's",
    )
    return parser.parse_args()


def synthetic_images(batch: int, seed: int) -> tf.data.Dataset:
    random = np.random.default_rng(seed)
    images = random.uniform(-1, 1, (EXAMPLES, 28, 28, 1)).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices(images)
    return dataset.shuffle(EXAMPLES, seed=seed).repeat().batch(batch).prefetch(2)


def make_generator() -> keras.Model:
    return keras.Sequential(
        [
            layers.Input((NOISE,)),
            layers.Dense(7 * 7 * 256, use_bias=False),
            layers.BatchNormalization(),
            layers.LeakyReLU(),
            layers.Reshape((7, 7, 256)),
            layers.Conv2DTranspose(128, 5, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.LeakyReLU(),
            layers.Conv2DTranspose(64, 5, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.LeakyReLU(),
            layers.Conv2DTranspose(
                1, 5, strides=2, padding="same", use_bias=False, activation="tanh"
            ),
        ]
    )


def make_discriminator() -> keras.Model:
    return keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(64, 5, strides=2, padding="same"),
            layers.LeakyReLU(),
            layers.Dropout(0.3),
            layers.Conv2D(128, 5, strides=2, padding="same"),
            layers.LeakyReLU(),
            layers.Dropout(0.3),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )


args = parse_args()
keras.utils.set_random_seed(args.seed)

generator = make_generator()
discriminator = make_discriminator()
cross_entropy = keras.losses.BinaryCrossentropy(from_logits=True)
generator_optimizer = keras.optimizers.Adam(1e-4)
discriminator_optimizer = keras.optimizers.Adam(1e-4)


@tf.function
def discriminator_step(images: tf.Tensor) -> tf.Tensor:
    fakes = generator(tf.random.normal((args.batch, NOISE)), training=True)
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
def generator_step() -> tf.Tensor:
    with tf.GradientTape() as tape:
        fakes = generator(tf.random.normal((args.batch, NOISE)), training=True)
        on_fakes = discriminator(fakes, training=True)
        loss = cross_entropy(tf.ones_like(on_fakes), on_fakes)
    variables = generator.trainable_variables
    gradients = tape.gradient(loss, variables)
    generator_optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return loss


dataset = synthetic_images(args.batch, args.seed).take(args.steps)
began = time.perf_counter()
with open(args.losses or os.devnull, "w", buffering=1) as losses:
    for step, images in enumerate(dataset):
        d_loss = float(discriminator_step(images))
        g_loss = float(generator_step())
        print(repr(d_loss), repr(g_loss), sep="\n", file=losses)
        if step % args.log_every == 0 or step == args.steps - 1:
            print(
                f"step {step}  discriminator {d_loss:.4f}  generator {g_loss:.4f}  "
                f"{time.perf_counter() - began:.1f} s",
                flush=True,
            )
