"""An input pipeline that distorts one image after another, between the steps."""

import sys

import keras
import tensorflow as tf
from clock import Clock
from model import convolutional, examples, step_function

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
BATCH = 32


def distort(image, label):
    image = tf.image.resize(image, (160, 160), method="bicubic")
    image = tf.image.random_brightness(tf.image.random_crop(image, (128, 128, 3)), 0.1)
    return tf.image.resize(image, (32, 32), antialias=True), label


dataset = tf.data.Dataset.from_tensor_slices(examples(512, 32, 32, 3)).repeat()
dataset = dataset.map(distort)
dataset = dataset.batch(BATCH)

keras.utils.set_random_seed(0)
train_step = step_function(convolutional(filters=16))
clock = Clock()
for inputs, labels in dataset.take(STEPS):
    clock.step(train_step(inputs, labels))
clock.end()
