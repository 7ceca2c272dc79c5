"""Devices and the links between them."""

from __future__ import annotations

from dltune.base.formatting import Table, columns
from dltune.systems.parallelism.schemas.topology import Topology
from dltune.views import Context, Piece, Section, View

ROWS = 500


def view(found: Topology, _: Context) -> View:
    sources = [*(f"{kind.name}: {kind.source}" for kind in found.kinds if kind.source)]
    sources += [found.source] if found.source else []
    body: list[Piece] = [_devices(found), _links(found), *sources]
    return View(
        title="Topology",
        head=[("topology", found.name), ("devices", f"{len(found.devices):,}")],
        sections=[Section("topology", "Devices and links", body)],
    )


def _devices(found: Topology) -> Table:
    kinds = {kind.name: kind for kind in found.kinds}
    rows = []
    for device in found.devices:
        kind = kinds[device.kind]
        rows.append(
            (
                *(device.name, device.host, kind.name),
                *(f"{kind.flops / 1e12:.3f}", f"{kind.bandwidth / 1e9:.1f}", f"{kind.share:.2f}"),
                f"{kind.overhead * 1e6:.1f}",
            )
        )
    heads = ("device", "host", "kind", ">Tflop/s", ">GB/s of memory", ">share", ">us an op")
    return Table("devices", columns(*heads), rows, name="devices", most_on_page=ROWS)


def _links(found: Topology) -> Table:
    rows = [
        (
            *link.ends,
            f"{link.bandwidth / 1e9:.3f}",
            f"{link.latency * 1e6:.1f}",
            "both ways together" if link.shared else "each way",
        )
        for link in found.links
    ]
    heads = columns("between", "and", ">GB/s", ">us", "")
    return Table("links", heads, rows, name="links", most_on_page=ROWS)
