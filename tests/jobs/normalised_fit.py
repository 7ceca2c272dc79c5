"""Keras `fit` on a model with batch norm; says what it finds in its own process at the end."""

import json
import os
from pathlib import Path

import keras
from keras import layers

from arguments import parser
from small_model import images

BATCH = 32

arguments = parser(__doc__)
args = arguments.parse_args()
keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        layers.Input((24, 24, 3)),
        layers.Conv2D(16, 3, padding="same"),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.Conv2D(32, 3, strides=2, padding="same"),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.Flatten(),
        layers.Dense(10),
    ]
)
model.compile(
    keras.optimizers.SGD(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
)
inputs, labels = images(args.steps * BATCH if args.steps <= 1000 else 1000 * BATCH)
epochs = max(1, args.steps // 1000)
history = model.fit(inputs, labels, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0)
maps = Path("/proc/self/maps").read_text().splitlines()
found = {
    "loss": history.history["loss"][0],
    "environment": dict(os.environ),
    "maps": [line.split()[-1] for line in maps if ".so" in line],
}
print(json.dumps(found))
