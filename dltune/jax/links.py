"""What ranks can send each other: sums and exchanges of several sizes, timed between them.

`timed` runs in every rank of a job, in a Python that has JAX and may have nothing else that dltune
needs; `fitted` and `topology` run in dltune's own.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dltune.documents.topology import Topology

# bytes that each rank sends, and how often each is tried
SIZES = (2**10, 2**14, 2**16, 2**17, 2**18, 2**19, 2**20)
REPEATS = 5


def timed(sizes: Sequence[int] = SIZES, repeats: int = REPEATS) -> dict[str, list[tuple[int, float]]]:
    """By kind of collective, the bytes that a rank sends in it and the median of its seconds. All
    ranks must call it, one device in each. "sum": an all-reduce, which in a ring of r ranks sends
    2 (r - 1) / r times the array; "gather": of r parts, which sends r - 1; "swap": an all-to-all of
    rows for columns, which sends (r - 1) / r of the part."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = sorted(jax.devices(), key=lambda one: one.process_index)
    ranks = len(devices)
    mesh = Mesh(np.array(devices), ("rank",))
    divided = NamedSharding(mesh, PartitionSpec("rank"))
    whole = NamedSharding(mesh, PartitionSpec())
    # a row for each rank: their sum is an all-reduce of a row
    summed = jax.jit(lambda one: one.sum(0), out_shardings=whole)
    gathered = jax.jit(lambda one: one, out_shardings=whole)
    columns = NamedSharding(mesh, PartitionSpec(None, "rank"))
    swapped = jax.jit(lambda one: one, out_shardings=columns)
    found: dict[str, list[tuple[int, float]]] = {"sum": [], "gather": [], "swap": []}
    for size in sizes:
        rows = {
            "sum": (summed, size * ranks // (2 * (ranks - 1)) // 4),
            "gather": (gathered, size // (ranks - 1) // 4),
            "swap": (swapped, size // (ranks - 1) * ranks // 4),
        }
        for kind, (run, numbers) in rows.items():
            shape = (ranks, numbers)
            local = np.ones((1, numbers), np.float32)
            array = jax.make_array_from_callback(shape, divided, lambda _, one=local: one)
            jax.block_until_ready(run(array))
            seconds = []
            for _ in range(repeats):
                began = time.perf_counter()
                jax.block_until_ready(run(array))
                seconds.append(time.perf_counter() - began)
            found[kind].append((size, statistics.median(seconds)))
    return found


def fitted(samples: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Seconds of latency and bytes a second: the line with the least relative squares."""
    weights = [1 / seconds**2 for _, seconds in samples]
    total = sum(weights)
    size = sum(w * n for w, (n, _) in zip(weights, samples, strict=True)) / total
    middle = sum(w * s for w, (_, s) in zip(weights, samples, strict=True)) / total
    both = sum(w * (n - size) * (s - middle) for w, (n, s) in zip(weights, samples, strict=True))
    own = sum(w * (n - size) ** 2 for w, (n, _) in zip(weights, samples, strict=True))
    each = both / own
    return max(0.0, middle - each * size), 1 / each


def topology(ranks: int, latency: float, bandwidth: float, name: str = "ranks") -> Topology:
    """Ranks that reach each other alike, each on a host of its own. XLA's CPU devices compute
    nothing else while they send."""
    from dltune.documents.topology import SCHEMA, Device, Kind, Link, Topology

    devices = tuple(Device(f"rank{n}", "core", f"host{n}") for n in range(ranks))
    links = tuple(Link((one.name, "switch"), bandwidth, latency / 2) for one in devices)
    return Topology(
        SCHEMA,
        name,
        (Kind("core", 1.0, 1.0, source="operators are timed"),),
        devices,
        links,
        ("switch",),
        overlap=False,
        source="all-reduces timed between the ranks",
    )
