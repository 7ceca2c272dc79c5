"""Batch norm after a convolution and after a dense layer, and norms that are of another kind."""

import keras
import tensorflow as tf
from keras import layers

from arguments import parser, recording
from small_model import images, step_function

arguments = parser(__doc__)
args = arguments.parse_args()
keras.utils.set_random_seed(0)

model = keras.Sequential(
    [
        layers.Input((24, 24, 3)),
        layers.Conv2D(16, 3, padding="same"),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.Conv2D(16, 3, strides=2, padding="same"),
        layers.LayerNormalization(),
        layers.GroupNormalization(4),
        layers.Flatten(),
        layers.Dense(32),
        layers.BatchNormalization(),
        layers.Dense(10),
    ]
)
train_step = step_function(model)


inputs, labels = images(32)
with recording(args) as record:
    for _ in range(args.steps):
        record(train_step(tf.constant(inputs), tf.constant(labels)))
