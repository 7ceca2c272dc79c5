"""Train a small transformer to predict the next of synthetic tokens."""

import argparse
import os
import time

# TensorFlow leaves oneDNN's kernels off by default on some CPUs, such as AMD's with AVX2 only
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

EXAMPLES = 2048
TOKENS = 1000
LENGTH = 64
WIDTH = 128
HEADS = 4
BLOCKS = 4


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--losses", metavar="FILE", help="write every step's loss, one a line")
    return parser.parse_args()


def synthetic_tokens(batch: int, seed: int) -> tf.data.Dataset:
    """Random walks: the next token is one of five, so that there is something to learn."""
    random = np.random.default_rng(seed)
    strides = random.integers(0, 5, (EXAMPLES, LENGTH + 1))
    walks = (random.integers(0, TOKENS, (EXAMPLES, 1)) + np.cumsum(strides, axis=1)) % TOKENS
    walks = walks.astype(np.int32)
    dataset = tf.data.Dataset.from_tensor_slices((walks[:, :-1], walks[:, 1:]))
    return dataset.shuffle(EXAMPLES, seed=seed).repeat().batch(batch).prefetch(2)


class Places(layers.Layer):
    """Adds a learnt vector to each place of the sequence."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.table = self.add_weight(shape=shape[1:], initializer="uniform")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs + self.table


def block(inputs: keras.KerasTensor) -> keras.KerasTensor:
    normed = layers.LayerNormalization()(inputs)
    attended = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(
        normed, normed, use_causal_mask=True
    )
    inputs = layers.Add()([inputs, attended])
    normed = layers.LayerNormalization()(inputs)
    hidden = layers.Dense(4 * WIDTH, activation="gelu")(normed)
    return layers.Add()([inputs, layers.Dense(WIDTH)(hidden)])


def make_transformer() -> keras.Model:
    tokens = layers.Input((LENGTH,), dtype="int32")
    hidden = Places()(layers.Embedding(TOKENS, WIDTH)(tokens))
    for _ in range(BLOCKS):
        hidden = block(hidden)
    return keras.Model(tokens, layers.Dense(TOKENS)(layers.LayerNormalization()(hidden)))


args = parse_args()
keras.utils.set_random_seed(args.seed)

model = make_transformer()
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.Adam(1e-3)


@tf.function
def train_step(tokens: tf.Tensor, following: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        loss = loss_function(following, model(tokens, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


dataset = synthetic_tokens(args.batch, args.seed).take(args.steps)
began = time.perf_counter()
with open(args.losses or os.devnull, "w", buffering=1) as losses:
    for step, (tokens, following) in enumerate(dataset):
        loss = float(train_step(tokens, following))
        print(repr(loss), file=losses)
        if step % args.log_every == 0 or step == args.steps - 1:
            print(f"step {step}  loss {loss:.4f}  {time.perf_counter() - began:.1f} s", flush=True)
