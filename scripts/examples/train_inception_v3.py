"""Train Inception-v3 on synthetic ImageNet-shaped images (299x299x3, 1000 classes)."""

import argparse
import os
import time

# TensorFlow leaves oneDNN's kernels off by default on some CPUs, such as AMD's with AVX2 only
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import keras
import numpy as np
import tensorflow as tf


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=1, metavar="STEPS")
    parser.add_argument("--losses", metavar="FILE", help="write every step's loss, one a line")
    return parser.parse_args()


def synthetic_images(batch: int, seed: int) -> tf.data.Dataset:
    random = np.random.default_rng(seed)
    examples = 8 * batch
    images = random.random((examples, 299, 299, 3), dtype=np.float32)
    labels = random.integers(0, 1000, examples)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    return dataset.shuffle(examples, seed=seed).repeat().batch(batch).prefetch(2)


args = parse_args()
keras.utils.set_random_seed(args.seed)

model = keras.applications.InceptionV3(weights=None, input_shape=(299, 299, 3), classes=1000)
loss_function = keras.losses.SparseCategoricalCrossentropy()
optimizer = keras.optimizers.RMSprop(learning_rate=0.001, momentum=0.9, epsilon=1.0)


@tf.function
def train_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        loss = loss_function(labels, model(images, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


dataset = synthetic_images(args.batch, args.seed).take(args.steps)
began = time.perf_counter()
with open(args.losses or os.devnull, "w", buffering=1) as losses:
    for step, (images, labels) in enumerate(dataset):
        loss = float(train_step(images, labels))
        print(repr(loss), file=losses)
        if step % args.log_every == 0 or step == args.steps - 1:
            print(f"step {step}  loss {loss:.4f}  {time.perf_counter() - began:.1f} s", flush=True)
