"""SyncBatchNorm: statistics of all replicas, of which there is one here; Keras' fit."""

import keras
import tensorflow as tf

from arguments import parser, recording
from small_model import images

args = parser(__doc__).parse_args()
keras.utils.set_random_seed(0)

with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
    model = keras.Sequential(
        [
            keras.layers.Input((24, 24, 3)),
            keras.layers.Conv2D(8, 3, padding="same"),
            keras.layers.BatchNormalization(synchronized=True),
            keras.layers.ReLU(),
            keras.layers.Conv2D(8, 3, padding="same"),
            keras.layers.BatchNormalization(synchronized=True, center=False),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        keras.optimizers.SGD(0.05, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
with recording(args) as record:
    losses = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: record(logs["loss"]))
    inputs, labels = images(32)
    model.fit(inputs, labels, batch_size=32, epochs=args.steps, callbacks=[losses], verbose=0)
print("trained")
