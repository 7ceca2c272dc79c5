"""A Keras model on JAX, trained by `fit`: jax_fit.py dense|conv FOLDER [what else it does]..."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import keras
import numpy as np

kind, folder, asked = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
layers = keras.layers
random = np.random.default_rng(0)
if kind == "dense":
    shape = (12,)
    body = [layers.Dense(16, activation="relu")]
else:
    shape = (8, 8, 3)
    body = [
        layers.Conv2D(4, 3, padding="same", activation="relu"),
        layers.BatchNormalization(),
        layers.Flatten(),
        layers.Dense(8, activation="relu"),
    ]
rows = 21  # the last batch, of five, cannot be divided
x, y = random.normal(size=(rows, *shape)).astype("f"), random.integers(0, 4, rows)
model = keras.Sequential([layers.Input(shape), *body, layers.Dense(4)])
for number, weight in enumerate(model.weights):
    drawn = np.random.default_rng(number).normal(size=weight.shape) * 0.3
    weight.assign(drawn + any(word in weight.path for word in ("variance", "gamma")))
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
if "different" in asked:
    x = np.random.default_rng().normal(size=x.shape)
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False)
found = {"fit": history.history["loss"], "evaluate": model.evaluate(x, y, verbose=0)}
if "dies" in asked:
    import jax

    if jax.process_index() == 1:
        raise RuntimeError("rank one has had enough")
if "saves" in asked:
    model.save(folder / "model.keras")
    again = keras.models.load_model(folder / "model.keras")
    found["predict"] = model.predict(x, verbose=0).tolist()
    found["again"] = again.predict(x, verbose=0).tolist()
    found["weights"] = [float(weight.sum()) for weight in model.get_weights()]
print(json.dumps(found))
