"""What parts of operators take on a device."""

from __future__ import annotations

from dltune.documents.operator_times import OperatorTimes, load
from dltune.report.section import Context, Loaded, Section, Shown
from dltune.report.table import html
from dltune.tables import Table, columns

__all__ = ["load", "show"]

ROWS = 500


def show(loaded: Loaded, _: Context) -> Shown:
    found = loaded.document
    assert isinstance(found, OperatorTimes)
    body = html(_parts(found), f"{loaded.prefix}-parts", ROWS)
    device = f"{found.kind}, {found.cores} of its cores each for {found.devices} devices"
    return Shown(
        title=f"Times of operators {loaded.path.name}",
        head=[("device", device), ("measured by", found.framework)],
        sections=[Section(f"{loaded.prefix}-times", "Parts of operators", body)],
    )


def _parts(found: OperatorTimes) -> Table:
    rows = [
        (
            one.type,
            ", ".join("x".join(map(str, shape)) for shape in one.inputs),
            "x".join(map(str, one.output)),
            f"{one.forward * 1e3:.3f}",
            f"{one.backward * 1e3:.3f}",
        )
        for one in found.parts
    ]
    heads = ("type", "reads", "gives out", ">ms forwards", ">ms backwards")
    return Table("parts", columns(*heads), rows)
