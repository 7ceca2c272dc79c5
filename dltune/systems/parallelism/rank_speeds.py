"""`dltune doctor --ranks`: the speeds of JAX processes on this machine, as a topology document."""

from __future__ import annotations

import sys
from pathlib import Path

from dltune.cli.results import claimed, tell
from dltune.system import topology
from dltune.systems.parallelism import times
from dltune.systems.parallelism.jax import links
from dltune.systems.parallelism.jax.operator_times import Request, measured
from dltune.systems.parallelism.schemas.topology import Kind, Topology
from dltune.views import Context, Section, View

_SIDE = 1024
_FLOAT = 4


def device_kind(name: str, ranks: int, python: str = sys.executable) -> Kind:
    """Return the kind for so many ranks, each on as many of the cores that this process can use:
    operations a second of a product of two square matrices, bytes a second of a sum of two. Raises
    UsageError as `operator_times.measured`.

    The speeds are those of ops on a rank's part of this machine's cores, by JAX.
    """
    square = (_SIDE, _SIDE)
    product = Request("dense", (square,), square, data=True)
    total = Request("add", (square, square), square)
    with times.device_cores(ranks):
        dense, added = measured([product, total], python)
    return Kind(
        name,
        flops=2 * _SIDE**3 / dense.forward,
        bandwidth=3 * _FLOAT * _SIDE**2 / added.forward,
        source=f"Measured with JAX on one of {ranks} equal parts of the cores: the product and the "
        f"sum of two {_SIDE} x {_SIDE} matrices of 32-bit floats.",
    )


def measure(ranks: int, output: Path, *, as_json: bool, overwrite: bool) -> None:
    """Measure, write the topology and print it. Raises UsageError if JAX is not installed."""
    with claimed(output, overwrite=overwrite) as file:
        kind = device_kind(topology.local().name, ranks)
        speeds = links.measured(ranks)
        document = links.topology(ranks, speeds, kind)
        if file:
            file.write(document)
    tell(document, _view, as_json=as_json, written=[output])


def _view(document: Topology, _: Context) -> View:
    (kind,) = document.kinds
    link = document.links[0]
    body = [
        f"{len(document.devices)} ranks, each with {kind.flops / 1e9:.1f} GFLOP/s and "
        f"{kind.bandwidth / 1e9:.1f} GB/s of memory bandwidth ({kind.name})",
        f"transfer to another rank: {2 * link.latency * 1e6:.0f} us latency, "
        f"{link.bandwidth / 1e6:,.0f} MB/s",
        f"time per byte, relative to a transfer: {document.all_reduce:.2f} in an all-reduce, "
        f"{document.all_to_all:.2f} in an all-to-all",
    ]
    return View([Section("speeds", "", body)])
