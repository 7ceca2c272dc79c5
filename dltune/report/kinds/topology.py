"""Devices and the links between them."""

from __future__ import annotations

from dltune.documents.topology import Topology, load
from dltune.report.markup import joined, tag
from dltune.report.section import Context, Loaded, Section, Shown
from dltune.report.table import html
from dltune.tables import Table, columns

__all__ = ["load", "show"]

ROWS = 500


def show(loaded: Loaded, _: Context) -> Shown:
    found = loaded.document
    assert isinstance(found, Topology)
    tables = [
        html(table, f"{loaded.prefix}-{name}", ROWS)
        for name, table in (("devices", _devices(found)), ("links", _links(found)))
    ]
    sources = [*(f"{kind.name}: {kind.source}" for kind in found.kinds if kind.source)]
    sources += [found.source] if found.source else []
    body = joined([*tables, *(tag("p", source) for source in sources)])
    return Shown(
        title=f"Topology {loaded.path.name}",
        head=[("topology", found.name), ("devices", f"{len(found.devices):,}")],
        sections=[Section(f"{loaded.prefix}-topology", "Devices and links", body)],
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
    return Table("devices", columns(*heads), rows)


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
    return Table("links", columns("between", "and", ">GB/s", ">us", ""), rows)
