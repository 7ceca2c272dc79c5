"""Speeds of links between ranks: sums and exchanges of several sizes, timed between them.

`timed` runs in every rank, in a Python that has JAX and possibly nothing else that dltune needs;
the rest runs in dltune's Python.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dltune.base.errors import UsageError
from dltune.job import ranks
from dltune.job.subprocesses import OF_DLTUNE, last_words, python_path

if TYPE_CHECKING:
    from dltune.systems.parallelism.schemas.topology import Kind, Topology


def run(
    folder: Path,
    count: int,
    command: Sequence[str],
    undone: str,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Return the output of rank 0 on both streams; the logs of all are left in `folder`. Raises
    UsageError when one fails: `undone` names the failed task, and the first word of `command` is a
    Python.

    The ranks run a command of dltune's own on this machine, and end together.
    """
    with open(ranks.log(folder, 0), "wb") as said:
        done = subprocess.run(
            ranks.started(range(count), count, command),
            env={**os.environ, **(environment or {}), ranks.FOLDER: str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        rank, _ = ranks.first_failed(folder) or (0, 0)
        words = last_words(ranks.log(folder, rank), f"rank {rank}")
        raise UsageError(
            f"{undone} with {command[0]}; {words}",
            remedy=f"install JAX for {command[0]}: pip install 'dltune[jax]'",
        )
    return ranks.log(folder, 0).read_text(errors="replace")


# bytes that each rank sends, and how often each is tried
SIZES = (2**10, 2**16, 2**18, 2**20, 2**21)
REPEATS = 5


def timed(
    sizes: Sequence[int] = SIZES, repeats: int = REPEATS
) -> dict[str, list[tuple[int, float]]]:
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
            # as many columns as each rank gets of the same
            "swap": (swapped, size // (ranks - 1) // 4 * ranks),
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


@dataclass(frozen=True)
class Speeds:
    """Seconds of latency; bytes a second that a rank sends in all-gathers, all-to-alls and
    all-reduces.

    gloo sends a part only after a message that the part is awaited, behind the data that go the
    other way: where two ranks exchange more than sockets hold, one way often comes after the other.
    An all-reduce sends in turns, both ways at once. So each kind of collective has a separate
    speed.
    """

    latency: float
    gather: float
    swap: float
    sum: float

    @staticmethod
    def of(samples: Mapping[str, Sequence[tuple[int, float]]]) -> Speeds:
        """By the smallest and the largest that `timed` has."""
        latency = statistics.median(kind[0][1] for kind in samples.values())
        speeds = {}
        for kind, timed in samples.items():
            size, seconds = timed[-1]
            # on a loaded machine it is possible that nothing is left after the latency
            speeds[kind] = size / max(seconds - latency, seconds / 2)
        return Speeds(latency, **speeds)

    @property
    def times(self) -> tuple[float, float]:
        """Return the times of a byte in an all-reduce and in an all-to-all, as `Problem` has
        them."""
        return self.gather / self.sum, self.gather / self.swap


def measured(count: int, python: str = sys.executable) -> Speeds:
    """Between so many ranks on this machine. Raises UsageError when they fail, as where `python`
    has no JAX."""
    with tempfile.TemporaryDirectory(prefix="dltune-") as name:
        folder = Path(name)
        worker = [python, "-m", "dltune.systems.parallelism.jax.links", ranks.free_address()]
        said = run(
            *(folder, count, worker, "cannot time links between ranks"),
            {"PYTHONPATH": python_path(OF_DLTUNE), "DLTUNE_DISABLE": "1"},
        )
    lines = said.splitlines()
    return Speeds.of(json.loads(next(line for line in lines if line.startswith("{"))))


def topology(ranks: int, speeds: Speeds, kind: Kind) -> Topology:
    """Ranks of one `kind` on one host that reach each other alike. XLA's CPU devices compute
    nothing else while they send."""
    from dltune.systems.parallelism.schemas.topology import (
        SCHEMA,
        Device,
        Link,
        Topology,
    )

    devices = tuple(Device(f"rank{n}", kind.name, "localhost") for n in range(ranks))
    links = tuple(Link((one.name, "switch"), speeds.gather, speeds.latency / 2) for one in devices)
    return Topology(
        SCHEMA,
        f"{ranks} ranks",
        (kind,),
        devices,
        links,
        ("switch",),
        overlap=False,
        all_reduce=speeds.times[0],
        all_to_all=speeds.times[1],
        source="Measured with collectives between the ranks.",
    )


def main() -> None:
    """One rank, started by `ranks.py` with the coordinator's address."""
    import jax

    address = sys.argv[1]
    rank, count = int(os.environ[ranks.RANK]), int(os.environ[ranks.RANKS])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        address,
        count,
        rank,
        cluster_detection_method="deactivate",
        coordinator_bind_address=address,
    )
    found = timed()
    if rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
