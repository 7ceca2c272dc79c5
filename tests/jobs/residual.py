"""A small residual network: thirteen layers of batch norm, whose step takes some 100 ms."""

import keras
import tensorflow as tf
from keras import layers

from arguments import parser, recording
from small_model import images, step_function

BATCH = 32

arguments = parser(__doc__)
args = arguments.parse_args()
keras.utils.set_random_seed(0)


def normed(inputs, filters, size, strides=1):
    hidden = layers.Conv2D(filters, size, strides, padding="same", use_bias=False)(inputs)
    return layers.BatchNormalization()(hidden)


def block(inputs, filters, strides):
    hidden = layers.ReLU()(normed(inputs, filters, 3, strides))
    hidden = normed(hidden, filters, 3)
    if strides != 1 or inputs.shape[-1] != filters:
        inputs = normed(inputs, filters, 1, strides)
    return layers.ReLU()(layers.Add()([inputs, hidden]))


given = layers.Input((24, 24, 3))
hidden = layers.ReLU()(normed(given, 32, 3))
for filters, strides in ((32, 1), (32, 1), (64, 2), (64, 1), (128, 2)):
    hidden = block(hidden, filters, strides)
model = keras.Model(given, layers.Dense(10)(layers.GlobalAveragePooling2D()(hidden)))
train_step = step_function(model, keras.optimizers.SGD(0.01, momentum=0.9))


dataset = tf.data.Dataset.from_tensor_slices(images(512)).repeat().batch(BATCH).prefetch(2)
with recording(args) as record:
    for batch in dataset.take(args.steps):
        record(float(train_step(*batch)))
