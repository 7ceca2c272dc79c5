"""Train ResNet-50 on synthetic CIFAR-10-shaped images (32x32x3, 10 classes)."""

import argparse
import os
import time

# TensorFlow leaves oneDNN's kernels off by default on some CPUs, such as AMD's with AVX2 only
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import keras
import numpy as np
import tensorflow as tf

EXAMPLES = 1024


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--losses", metavar="FILE", help="write every step's loss, one a line")
    return parser.parse_args()


def synthetic_images(batch: int, seed: int) -> tf.data.Dataset:
    random = np.random.default_rng(seed)
    images = random.random((EXAMPLES, 32, 32, 3), dtype=np.float32)
    labels = random.integers(0, 10, EXAMPLES)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    return dataset.shuffle(EXAMPLES, seed=seed).repeat().batch(batch).prefetch(2)


args = parse_args()
keras.utils.set_random_seed(args.seed)

model = keras.applications.ResNet50(weights=None, input_shape=(32, 32, 3), classes=10)
loss_function = keras.losses.SparseCategoricalCrossentropy()
optimizer = keras.optimizers.SGD(learning_rate=0.01, momentum=0.9)


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
