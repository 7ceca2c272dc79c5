"""View of the times of parts of operators on a device."""

from __future__ import annotations

from dltune.base.formatting import Table, columns
from dltune.systems.parallelism.schemas.operator_times import OperatorTimes
from dltune.views import Context, Section, View

ROWS = 500


def view(found: OperatorTimes, _: Context) -> View:
    device = f"{found.kind}, {found.cores} of its cores each for {found.devices} devices"
    return View(
        title="Times of operators",
        head=[("device", device), ("measured by", found.framework)],
        sections=[Section("times", "Parts of operators", [_parts(found)])],
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
    return Table("parts", columns(*heads), rows, name="parts", most_on_page=ROWS)
