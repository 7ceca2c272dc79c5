"""A training loop whose time goes into one line of Python between its steps."""

import numpy as np
import tensorflow as tf

from arguments import parser, recording

args = parser(__doc__).parse_args()
weights = tf.Variable(tf.zeros((64, 8)))
random = np.random.default_rng(0)


@tf.function
def step(images):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.matmul(images, weights) - 1.0))
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss


def augment(images):
    total = 0.0
    for _ in range(400_000):
        total += 1.0
    return images + np.float32(total * 0)


images = random.standard_normal((32, 64), dtype=np.float32)
with recording(args) as record:
    for number in range(args.steps):
        record(step(tf.constant(augment(images))))
        if number % 1000 == 0:
            print(f"step {number}", flush=True)
