"""Tables that can be sorted by their heads and filtered by a word, with a keyboard or a mouse."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.report.charts.bars import bar
from dltune.report.markup import Markup, joined, short, tag
from dltune.tables import Bar, Cell, Figure, Key, Prose, Table, columns

# rows from which on a table has a field to filter it by
FILTERED = 8


def table(
    identifier: str,
    caption: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    sorted_by: int | None = None,
) -> Markup:
    """`heads` as `tables.columns` takes them."""
    return html(Table(caption, columns(*heads), rows, sorted_by), identifier)


def html(table: Table, identifier: str, most: int | None = None) -> Markup:
    """A table, `most` rows of it at most. `identifier`: unique on the page."""
    rows = table.rows[:most]
    caption = table.title[:1].upper() + table.title[1:]
    if len(rows) < len(table.rows):
        caption += f", {len(rows)} of {len(table.rows)}"
    heads = [
        _head(column.head, column.right, index == table.sorted_by)
        for index, column in enumerate(table.columns)
    ]
    body = [
        tag(
            "tr",
            *(
                _cell(cell, "n" if column.right else None)
                for cell, column in zip(row, table.columns, strict=True)
            ),
        )
        for row in rows
    ]
    shown = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *body),
        id=identifier,
    )
    region = tag("div", shown, class_="wide", tabindex="0", role="region", aria_label=caption)
    if len(rows) < FILTERED:
        return region
    field = f"{identifier}-filter"
    search = tag(
        "p",
        tag("label", "Filter ", for_=field),
        tag("input", id=field, type="search", data_table=identifier, autocomplete="off"),
        tag("output", f"{len(rows)} rows", for_=field, aria_live="polite"),
        class_="filter",
    )
    return joined([search, region])


def _cell(cell: Cell, style: str | None) -> Markup:
    """Names are cut to be shown; sentences are not."""
    if isinstance(cell, Figure):
        value = "" if cell.value is None else repr(cell.value)
        return tag("td", cell.text, class_=style, data_value=value)
    if isinstance(cell, Key):
        return tag("td", key_cell(cell.text), class_=style)
    if isinstance(cell, Prose):
        return tag("td", tag("span", cell.text, class_="why"), class_=style)
    if isinstance(cell, Bar):
        return tag("td", bar(cell.share, "bar chosen" if cell.chosen else "bar"), class_=style)
    return tag("td", short(cell) if type(cell) is str else cell, class_=style)


def _head(text: str, flush: bool, first: bool) -> Markup:
    if not text:
        return tag("td")
    button = tag("button", text, type="button", data_number=flush)
    return tag(
        "th",
        button,
        scope="col",
        class_="n" if flush else None,
        aria_sort="descending" if first else "none",
    )


def key_cell(key: str) -> Markup:
    """An op's key: type and inputs, its attributes small."""
    shown = short(key)
    head, brace, rest = shown.partition("{")
    return tag("code", head, tag("small", brace, rest) if brace else None, class_="key")
