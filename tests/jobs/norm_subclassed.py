"""A subclassed model with blocks of its own, trained by a loop that is not a tf.function's."""

import keras
import tensorflow as tf

from arguments import parser, recording
from small_model import images

args = parser(__doc__).parse_args()
keras.utils.set_random_seed(0)


class Block(keras.layers.Layer):
    def __init__(self, filters):
        super().__init__()
        self.convolution = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)
        self.norm = keras.layers.BatchNormalization(momentum=0.9, scale=False)

    def call(self, inputs, training=None):
        return tf.nn.relu(self.norm(self.convolution(inputs), training=training))


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [Block(8), Block(16), Block(16)]
        self.head = keras.layers.Dense(10)

    def call(self, inputs, training=None):
        for block in self.blocks:
            inputs = block(inputs, training=training)
        return self.head(tf.reduce_mean(inputs, axis=[1, 2]))


net = Net()
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.Adam(1e-3)


@tf.function(reduce_retracing=True)
def gradients_of(inputs, labels):
    with tf.GradientTape() as tape:
        loss = loss_of(labels, net(inputs, training=True))
    return loss, tape.gradient(loss, net.trainable_variables)


# the last batch of an epoch is smaller
dataset = tf.data.Dataset.from_tensor_slices(images(100)).batch(32).repeat()
with recording(args) as record:
    for batch in dataset.take(args.steps):
        loss, gradients = gradients_of(*batch)
        optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
        record(loss)
print("trained")
