"""Tables that can be sorted by their heads and filtered by a word, with a keyboard or a mouse."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.report.markup import Markup, short, tag

# rows from which on a table has a field to filter it by
FILTERED = 8


def table(
    identifier: str,
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    sorted_by: int | None = None,
) -> Markup:
    """`columns` as in the terminal's tables: ">" before a head aligns to the right, and such a
    column is sorted by its cells' numbers. A head without text is not sorted by. `sorted_by`: the
    column by which rows come sorted, highest first. `identifier`: unique on the page."""
    right = [column.startswith(">") for column in columns]
    heads = [
        _head(column.lstrip(">"), flush, index == sorted_by)
        for index, (column, flush) in enumerate(zip(columns, right, strict=True))
    ]
    body = [
        tag(
            "tr",
            *(
                tag("td", cell, class_="n" if flush else None)
                for cell, flush in zip(row, right, strict=True)
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
    return Markup(search + region)


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
