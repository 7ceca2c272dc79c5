"""`dltune doctor --ranks`: the speeds of JAX processes on this machine, as a topology document."""

from __future__ import annotations

from pathlib import Path

from dltune.cli.results import claimed, tell
from dltune.system import topology
from dltune.systems.parallelism.jax import links, peaks
from dltune.systems.parallelism.schemas.topology import Topology
from dltune.views import Context, Section, View


def measure(ranks: int, output: Path, *, as_json: bool, overwrite: bool) -> None:
    """Measure, write the topology and print it. Raises UsageError if JAX is not installed."""
    with claimed(output, overwrite=overwrite) as file:
        kind = peaks.kind(topology.local().name, ranks)
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
