"""tf.keras of before Keras 3, from the package tf_keras: fit with a train_step of its own."""

import numpy as np
import tensorflow as tf
import tf_keras as keras

from arguments import parser, recording

args = parser(__doc__).parse_args()
keras.utils.set_random_seed(0)


class Net(keras.Model):
    def train_step(self, data):
        inputs, labels = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(inputs, labels, self(inputs, training=True))
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return {"loss": loss}


inputs = keras.Input((24, 24, 3))
features = keras.layers.Conv2D(8, 3, padding="same")(inputs)
features = keras.layers.ReLU()(keras.layers.BatchNormalization()(features))
outputs = keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(features))
model = Net(inputs, outputs)
model.compile(
    keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
)
random = np.random.default_rng(0)
data = random.random((32, 24, 24, 3), dtype=np.float32), random.integers(0, 10, 32)
with recording(args) as record:
    for _ in range(args.steps):
        record(model.fit(*data, batch_size=32, verbose=0).history["loss"][0])
print("trained")
