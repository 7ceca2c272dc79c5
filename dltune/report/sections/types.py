"""Time by op type."""

from __future__ import annotations

from collections.abc import Iterable

from dltune.analysis.figures import Analysis, Figures
from dltune.report.markup import Markup
from dltune.report.table import html
from dltune.tables import Bar, Table, columns


def types(analysis: Analysis, prefix: str) -> Markup:
    """On one thread, at each op's best threads, and in the job's own run."""
    kinds: dict[str, list[Figures]] = {}
    for figures in analysis.ops:
        kinds.setdefault(figures.op.type, []).append(figures)
    ordered = sorted(kinds.items(), key=lambda kind: -sum(f.serial for f in kind[1]))
    most = max((sum(f.share for f in found) for _, found in ordered), default=0.0) or 1.0
    rows = []
    for kind, found in ordered:
        share = sum(figures.share for figures in found)
        serial = sum(figures.serial for figures in found)
        best = sum(f.best.time.median * f.op.count for f in found if f.best)
        rows.append(
            (
                kind,
                str(len(found)),
                str(sum(figures.op.count for figures in found)),
                Bar(share / most),
                f"{share:.1%}",
                _ms(serial),
                _ms(best),
                f"{serial / best:.2f}x" if best > 0 else "",
                _ms(_own(found)),
            )
        )
    heads = columns(
        *("op type", ">ops", ">runs", "", ">share", ">1 thread ms", ">best threads ms"),
        *(">gain", ">own settings ms"),
    )
    table = Table("time of a round by op type", heads, rows, sorted_by=4)
    return html(table, f"{prefix}-types-table")


def _own(found: Iterable[Figures]) -> float:
    return sum((figures.op.own or 0.0) * figures.op.count for figures in found)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"
