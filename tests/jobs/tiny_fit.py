"""Keras `fit` on a small dense network: what Keras does between steps takes longer than they do."""

import keras
import numpy as np
from keras import layers

from arguments import parser

BATCH, EPOCH = 32, 2000

args = parser(__doc__).parse_args()
keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        layers.Input((64,)),
        layers.Dense(128, activation="relu"),
        layers.Dense(128, activation="relu"),
        layers.Dense(10),
    ]
)
model.compile(
    keras.optimizers.SGD(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
)
random = np.random.default_rng(0)
inputs = random.random((EPOCH * BATCH, 64), dtype=np.float32)
labels = random.integers(0, 10, EPOCH * BATCH)
model.fit(inputs, labels, BATCH, epochs=max(1, args.steps // EPOCH), shuffle=False, verbose=0)
