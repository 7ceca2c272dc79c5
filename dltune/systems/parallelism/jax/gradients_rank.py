"""One rank of a gradient check: `python gradients_rank.py ORDERS`, started by `ranks.py`.

Pairs of operators, the second reading the first, are trained for one step on the mesh and on one
device alone. It runs in the job's Python, which can be without dltune.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "inject"))
from _dltune_layouts import Layouts

_DIMENSION_NUMBERS = ("NHWC", "HWIO", "NHWC")


def main(orders: dict[str, Any]) -> None:
    """Run the check. `orders`: the `plan`, `pairs` of its operators by number, the coordinator's
    `address`, and where rank 0 writes the `result`: for each pair and array the largest difference
    of its gradients next to their largest, and how many times as large they are in all."""
    import jax
    import numpy as np
    from jax.experimental.multihost_utils import process_allgather
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    rank, ranks = int(os.environ["DLTUNE_RANK"]), int(os.environ["DLTUNE_RANKS"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        orders["address"],
        ranks,
        rank,
        cluster_detection_method="deactivate",
        coordinator_bind_address=orders["address"],
    )
    layouts = Layouts(orders["plan"])
    mesh = Mesh(np.array(jax.devices()).reshape(layouts.mesh), layouts.axes)
    operators = orders["plan"]["operators"]
    length = 2 * math.prod(layouts.mesh)  # of every dimension, so that all can be divided

    def sharded(entries: Any) -> Any:
        return NamedSharding(mesh, PartitionSpec(*entries))

    def constrained(operator: dict[str, Any], array: Any) -> Any:
        entries = layouts.output(operator["name"], array.shape)
        return jax.lax.with_sharding_constraint(array, sharded(entries))

    found = []
    for pair in orders["pairs"]:
        chain = [operators[n] for n in pair]
        arrays = _arrays(chain, length)
        placed = {
            name: layouts.batch(array.shape)
            if name == "input"
            else layouts.weight(name, array.shape)
            for name, array in arrays.items()
        }
        shardings = {name: sharded(entries) for name, entries in placed.items()}
        whole = {
            name: jax.make_array_from_callback(array.shape, shardings[name], array.__getitem__)
            for name, array in arrays.items()
        }
        alike = jax.value_and_grad(lambda given, c=chain: _loss(c, given, constrained))
        on_mesh, gradients = jax.jit(alike, out_shardings=(sharded(()), shardings))(whole)
        gathered = {
            name: np.asarray(process_allgather(gradient, tiled=True))
            for name, gradient in gradients.items()
        }
        if rank == 0:
            plain = jax.value_and_grad(lambda given, c=chain: _loss(c, given, lambda _, a: a))
            loss, expected = jax.jit(plain)(arrays)
            differences = {
                name: _difference(gradient, np.asarray(expected[name]))
                for name, gradient in gathered.items()
            }
            found.append({"loss": _difference(float(on_mesh), float(loss)), **differences})
    if rank == 0:
        Path(orders["result"]).write_text(json.dumps(found))


def _difference(one: Any, other: Any) -> tuple[float, float]:
    import numpy as np

    most = float(np.abs(other).max())
    size = float(np.abs(other).sum())
    return float(np.abs(one - other).max()) / most, float(np.abs(one).sum()) / size


def _arrays(chain: list[dict[str, Any]], length: int) -> dict[str, Any]:
    """The input of the first, and the weights of both, by path."""
    import numpy as np

    random = np.random.default_rng(0)
    shape = [length] * chain[0]["rank"]
    arrays = {"input": random.normal(size=shape)}
    for operator in chain:
        flat = len(shape) == 4 and operator["rank"] == 2
        reads = math.prod(shape[1:]) if flat else length
        head = operator["type"].split()[0]
        shape = [length] * operator["rank"]
        if not operator["weights"]:
            continue
        if len(shape) == 4 and head == "conv":
            kernel = [3, 3, length, length]
        elif len(shape) == 4 and head == "depthwise":
            kernel = [3, 3, length, 1]
        else:
            kernel = [reads, length]
        scale = math.prod(kernel[:-1]) ** -0.5
        arrays[f"{operator['weights']}/kernel"] = random.normal(size=kernel) * scale
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def _loss(chain: list[dict[str, Any]], given: dict[str, Any], constrained: Any) -> Any:
    import jax
    import jax.numpy as jnp

    values = given["input"]
    for operator in chain:
        head = operator["type"].split()[0]
        kernel = given.get(f"{operator['weights']}/kernel")
        if values.ndim > operator["rank"]:
            values = values.reshape(*values.shape[: operator["rank"] - 1], -1)
        if kernel is not None and kernel.ndim == 4:
            groups = values.shape[-1] if head == "depthwise" else 1
            if head == "depthwise":
                kernel = jnp.swapaxes(kernel, 2, 3)
            values = jax.lax.conv_general_dilated(
                values,
                kernel,
                (1, 1),
                "SAME",
                dimension_numbers=_DIMENSION_NUMBERS,
                feature_group_count=groups,
            )
        elif kernel is not None:
            values = values @ kernel
        elif values.ndim == 4 and head.endswith("_pool"):
            values = jax.lax.reduce_window(
                values, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 1, 1, 1), "SAME"
            )
        values = jnp.tanh(constrained(operator, values))
    weighing = jnp.arange(values.size, dtype=values.dtype).reshape(values.shape) % 7 - 3
    return jnp.mean(values * weighing)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
