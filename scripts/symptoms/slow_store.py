"""Examples in random order from an LMDB file, which is opened as advised for local disks."""

import sys

import keras
import lmdb
import numpy as np
import tensorflow as tf
from clock import Clock
from model import convolutional, step_function

SIZE, BATCH = 128, 4
DATABASE = sys.argv[1]
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000

environment = lmdb.open(DATABASE, readonly=True, lock=False, readahead=False)
count = environment.stat()["entries"]
random = np.random.default_rng(0)


def batch():
    with environment.begin() as transaction:
        records = [transaction.get(b"%06d" % i) for i in random.integers(0, count, BATCH)]
    pixels = [np.frombuffer(one, np.uint8).reshape(SIZE, SIZE, 3) for one in records]
    return tf.constant(np.stack(pixels) / np.float32(255)), random.integers(0, 10, BATCH)


keras.utils.set_random_seed(0)
train_step = step_function(convolutional(size=SIZE, filters=4))
clock = Clock()
for _ in range(STEPS):
    images, labels = batch()
    clock.step(train_step(images, tf.constant(labels)))
clock.end()
