"""Tables that can be sorted by their heads and filtered by a word, with a keyboard or a mouse."""

from __future__ import annotations

from dltune.base.formatting import Bar, Cell, Drawn, Figure, Key, Prose, Table
from dltune.report.charts.marks import bar
from dltune.report.markup import Markup, rendered, short, tag

# rows from which on a table has a field to filter it by
FILTERED = 8


def html(table: Table, identifier: str) -> Markup:
    """Return a table. `identifier`: unique on the page."""
    rows = table.rows[: table.most_on_page]
    caption = table.title[:1].upper() + table.title[1:]
    if len(rows) < len(table.rows):
        caption += f", {len(rows)} of {len(table.rows)}"
    return rendered(
        "table.html",
        table=table,
        rows=rows,
        caption=caption,
        identifier=identifier,
        filtered=FILTERED,
        drawn=_drawn,
    )


def _drawn(cell: Cell) -> str | Drawn:
    """Names are cut to be shown; sentences are not."""
    match cell:
        case Key():
            # type and inputs of an op, its attributes small
            head, brace, rest = short(cell.text).partition("{")
            small = tag("small", brace, rest) if brace else None
            return tag("code", head, small, class_="key")
        case Prose():
            return tag("span", cell.text, class_="why")
        case Bar():
            return bar(cell.share, "bar chosen" if cell.chosen else "bar")
        case Figure():
            return cell.text
    return short(cell) if type(cell) is str else cell
