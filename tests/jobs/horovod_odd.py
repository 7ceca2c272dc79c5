"""Ranks whose gradients are out of the ordinary: late, conditional, sparse, missing, or unplanned.

Writes FOLDER/rankN: each step's loss, then the parameters' digest. With DIES in the environment
rank 1 raises an exception then, while the other trains on.
"""

import hashlib
import os
import sys
import time
from pathlib import Path

import tensorflow as tf

import horovod.tensorflow as hvd

STEPS, SLOW_STEP = 8, 4

hvd.init()
folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
rank = hvd.rank()
random = tf.random.Generator.from_seed(5)

table = tf.Variable(random.normal((10, 8)))
first = tf.Variable(random.normal((8, 8)))
switched = tf.Variable(random.normal((8,)))
unused = tf.Variable(random.normal((3,)))
last = tf.Variable(random.normal((8, 4)))
variables = [table, first, switched, unused, last]


def wait(gradient):
    time.sleep(0.2 * rank)  # on one rank it is there at once
    return gradient


@tf.custom_gradient
def late(x):
    def gradient(upstream):
        waited = tf.py_function(wait, [upstream], tf.float32)
        waited.set_shape(upstream.shape)
        return waited

    return tf.identity(x), gradient


@tf.function
def step(rows, number):
    with tf.GradientTape(persistent=True) as tape:
        x = tf.nn.embedding_lookup(table, rows)
        x = tf.tanh(x @ late(first))
        x = tf.cond(number % 2 == 0, lambda: x * switched, lambda: x + switched * switched)
        loss = tf.reduce_mean((x @ last) ** 2)
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, variables)
    # the script's own groups, and a call that no plan knows
    own = hvd.DistributedGradientTape(tape, groups=1).gradient(loss, [first, last])
    unplanned = hvd.DistributedGradientTape(tape).gradient(loss, [switched])
    for variable, gradient in zip(variables, gradients, strict=True):
        if isinstance(gradient, tf.IndexedSlices):
            variable.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
        elif gradient is not None:
            variable.assign_sub(0.1 * gradient)
    first.assign_sub(0.01 * own[0])
    switched.assign_sub(0.01 * unplanned[0])
    return loss


with open(folder / f"rank{rank}", "w", buffering=1) as record:
    for number in range(STEPS):
        if rank == 1 and number == SLOW_STEP:
            time.sleep(2)
        rows = tf.constant([(number * 3 + rank) % 10, number % 10])
        print(float(step(rows, tf.constant(number))), file=record)
    digest = hashlib.sha256(b"".join(v.numpy().tobytes() for v in variables)).hexdigest()
    print("parameters", digest, file=record)
if "DIES" in os.environ:
    if rank == 1:
        raise ValueError("this rank has had enough")
    step(rows, tf.constant(STEPS))
