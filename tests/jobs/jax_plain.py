"""Plain JAX: a step of a small network, divided where there is an emitted file `dltune_plan`."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np

try:
    import dltune_plan as plan
except ModuleNotFoundError:
    plan = None

random = np.random.default_rng(0)


def weights(*shape: int) -> dict[str, np.ndarray]:
    return {"kernel": random.normal(size=shape).astype("f") * 0.2, "bias": np.zeros(shape[-1], "f")}


params = {
    "sequential": {
        "conv2d": weights(3, 3, 3, 4),
        "dense": weights(256, 8),
        "dense_1": weights(8, 4),
    }
}
x, y = random.normal(size=(24, 8, 8, 3)).astype("f"), random.integers(0, 4, 24)


def constrained(name: str, array: jax.Array) -> jax.Array:
    return array if plan is None else plan.constrain(f"sequential/{name}", array)


def loss(params: dict, x: jax.Array, y: jax.Array) -> jax.Array:
    conv, dense, last = params["sequential"].values()
    numbers = ("NHWC", "HWIO", "NHWC")
    h = jax.lax.conv_general_dilated(x, conv["kernel"], (1, 1), "SAME", dimension_numbers=numbers)
    h = constrained("conv2d", jax.nn.relu(h + conv["bias"]))
    h = h.reshape(h.shape[0], -1) @ dense["kernel"] + dense["bias"]
    h = constrained("dense", jax.nn.relu(h))
    h = constrained("dense_1", h @ last["kernel"] + last["bias"])
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(h), y[:, None], 1))


@jax.jit
def step(params: dict, x: jax.Array, y: jax.Array) -> tuple[dict, jax.Array]:
    found, gradients = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda a, b: a - 0.1 * b, params, gradients), found


if plan is not None:
    params = plan.shard(params)
losses = []
for start in range(0, 24, 8):
    batch = [one[start : start + 8] for one in (x, y)]
    if plan is not None:
        batch = [plan.batch(one[plan.rows(8)], 8) for one in batch]
    params, found = step(params, *batch)
    losses.append(float(found))
print(json.dumps(losses))
