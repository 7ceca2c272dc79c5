"""A network as operators that can be divided."""

from __future__ import annotations

from dltune.documents.operators import Operator, Operators, load
from dltune.report.section import Context, Loaded, Section, Shown
from dltune.report.table import html
from dltune.tables import Key, Table, columns

__all__ = ["load", "show"]

ROWS = 500


def show(loaded: Loaded, _: Context) -> Shown:
    graph = loaded.document
    assert isinstance(graph, Operators)
    heads = ("operator", "type", "output", "reads", "learns", ">Gflop forwards", ">backwards")
    rows = [_row(graph, one) for one in graph.operators]
    table = html(Table("operators", columns(*heads), rows), f"{loaded.prefix}-operators", ROWS)
    learned = sum(weights.bytes for weights in graph.weights)
    return Shown(
        title=f"Network {loaded.path.name}",
        head=[
            ("network", graph.name),
            ("operators", f"{len(graph.operators):,}"),
            ("weights", f"{learned / 1e6:,.1f} MB"),
        ],
        sections=[Section(f"{loaded.prefix}-network", "Operators", table)],
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
