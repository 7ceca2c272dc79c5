"""A generator that makes each example by itself: words are looked up and set one by one."""

import sys

import keras
import numpy as np
import tensorflow as tf
from clock import Clock
from model import dense, step_function

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
WORDS, LENGTH, BATCH = 512, 400, 64
vocabulary = [f"word{i}" for i in range(WORDS)]
random = np.random.default_rng(0)
text = [vocabulary[i] for i in random.integers(0, WORDS, 100_000)]
numbers = {word: i for i, word in enumerate(vocabulary)}
coded = np.array([numbers[word] for word in text])
labels = random.integers(0, 10, BATCH)


def bags():
    while True:
        starts = random.integers(0, len(text) - LENGTH, BATCH)
        bag = np.zeros((BATCH, WORDS), np.float32)
        for row, start in enumerate(starts):
            for word in text[start : start + LENGTH]:
                bag[row, numbers[word]] += 1
        yield bag, labels


shapes = tf.TensorSpec((BATCH, WORDS), tf.float32), tf.TensorSpec((BATCH,), tf.int64)
dataset = tf.data.Dataset.from_generator(bags, output_signature=shapes)
keras.utils.set_random_seed(0)
train_step = step_function(dense(units=128, inputs=WORDS, depth=2))
clock = Clock()
for inputs, targets in dataset.take(STEPS):
    clock.step(train_step(inputs, targets))
clock.end()
