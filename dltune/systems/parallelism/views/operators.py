"""A network as operators that can be divided."""

from __future__ import annotations

from dltune.base.formatting import Key, Table, columns
from dltune.systems.parallelism.schemas.operators import Operator, Operators
from dltune.views import Context, Section, View

ROWS = 500


def view(graph: Operators, _: Context) -> View:
    heads = ("operator", "type", "output", "reads", "learns", ">Gflop forwards", ">backwards")
    rows = [_row(graph, one) for one in graph.operators]
    table = Table("operators", columns(*heads), rows, name="operators", most_on_page=ROWS)
    learned = sum(weights.bytes for weights in graph.weights)
    return View(
        title="Network",
        head=[
            ("network", graph.name),
            ("operators", f"{len(graph.operators):,}"),
            ("weights", f"{learned / 1e6:,.1f} MB"),
        ],
        sections=[Section("network", "Operators", [table])],
    )


def _row(graph: Operators, one: Operator) -> tuple[str | Key, ...]:
    learned = "" if one.weights is None else graph.weights[one.weights].name
    return (
        Key(one.name),
        one.type,
        ", ".join(f"{dimension.name} {dimension.size}" for dimension in one.dimensions),
        ", ".join(graph.operators[read.operator].name for read in one.inputs),
        learned,
        f"{one.flops / 1e9:.3f}",
        f"{one.backward_flops / 1e9:.3f}",
    )
