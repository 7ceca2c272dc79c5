"""The convolutional network of strategies_rank.py as a Keras job: it knows nothing of plans.

    KERAS_BACKEND=jax python strategies_keras.py STEPS EPOCHS

Prints the seconds of a step in each epoch but the first, and every epoch's loss, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import keras
import numpy as np

BATCH = 64
steps, epochs = map(int, sys.argv[1:])
keras.utils.set_random_seed(0)
layers = keras.layers
body: list[Any] = []
for number, (channels, window) in enumerate(((32, 5), (64, 3), (64, 3)), 1):
    name = f"conv{number}"
    body.append(layers.Conv2D(channels, window, padding="same", activation="relu", name=name))
    body.append(layers.MaxPooling2D(name=f"pool{number}"))
model = keras.Sequential(
    [
        layers.Input((32, 32, 3)),
        *body,
        layers.Flatten(),
        layers.Dense(1024, activation="relu", name="dense1"),
        layers.Dense(512, activation="relu", name="dense2"),
        layers.Dense(10, name="classes"),
    ],
    name="network",
)
# a small rate: what differs in rounding stays small for many steps
model.compile(
    keras.optimizers.SGD(0.001), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
)
random = np.random.default_rng(0)
x = random.normal(size=(steps * BATCH, 32, 32, 3)).astype("f")
y = random.integers(0, 10, steps * BATCH)


class Clock(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, *_: Any) -> None:
        self.began = time.perf_counter()

    def on_epoch_end(self, *_: Any) -> None:
        self.seconds.append((time.perf_counter() - self.began) / steps)


clock = Clock()
history = model.fit(
    x, y, batch_size=BATCH, epochs=epochs, verbose=0, shuffle=False, callbacks=[clock]
)
print(json.dumps({"seconds": clock.seconds[1:], "losses": history.history["loss"]}))
