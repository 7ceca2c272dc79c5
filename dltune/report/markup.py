"""HTML of the page: escaped text, parts of pictures, and tables.

HTML can only be made escaped: text becomes markup in `tag` and in `rendered`, and nowhere else.

Names of ops and paths come from other people's jobs. Their content is shown, never obeyed: markup
is escaped, control characters and marks that turn the direction of writing are written out, as
`\\u202e`, and very long names are cut in the middle.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from dltune.base.formatting import Bar, Cell, Drawn, Figure, Key, Prose, Table, visible

if TYPE_CHECKING:
    import jinja2


__all__ = ["Markup", "data", "escaped", "joined", "rendered", "short", "tag"]

# characters of a text that are shown at most, and of a name
LONGEST = 4000
NAME = 240


def short(name: str) -> str:
    """A name as it is shown in tables and titles."""
    return visible(name, NAME)


def escaped(value: object) -> Markup:
    """As HTML: markup as it is, all else as text."""
    return value if isinstance(value, Markup) else escape(visible(str(value), LONGEST))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. `class_` is written class, `view_box` viewBox, `data_x` data-x."""
    names = (_NAMES.get(key) or key.rstrip("_").replace("_", "-") for key in attributes)
    written = (f' {n}="{escaped(v)}"' for n, v in zip(names, attributes.values(), strict=True))
    return Markup(f"<{name}{''.join(written)}>{joined(children)}</{name}>")


_NAMES = {"view_box": "viewBox", "preserve_aspect_ratio": "preserveAspectRatio"}


def joined(children: object) -> Markup:
    """Children one after the other; lists of them are opened, None is nothing."""
    if children is None:
        return Markup("")
    if isinstance(children, (list, tuple)):
        return Markup().join(joined(child) for child in children)
    return escaped(children)


@functools.cache
def _templates() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("dltune.report", "assets"),
        autoescape=True,
        finalize=escaped,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def rendered(template: str, **values: object) -> Markup:
    """A template of `assets/`, in which every value that is not markup is shown as text."""
    return Markup(_templates().get_template(template).render(values))


def data(identifier: str, content: bytes) -> Markup:
    """JSON for the page's script, which no content can end or leave."""
    text = content.decode().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(f'<script type="application/json" id="{escaped(identifier)}">{text}</script>')


# Parts of pictures: bars, rows with a name next to the drawing, captions and legends
def percent(share: float) -> str:
    """A part of the width, `share` between 0 and 1."""
    return f"{100 * share:.2f}%"


def bar(share: float, style: str = "bar") -> Markup:
    """Return a bar over a share of the cell's width, `share` between 0 and 1; the number next to it
    gives it as text."""
    width = f"{100 * min(1.0, max(0.0, share)):.1f}%"
    return tag(
        "svg", tag("rect", width=width, height="10", rx="2"), class_=style, aria_hidden="true"
    )


def divided(parts: Sequence[tuple[str, float]]) -> Markup:
    """A bar of all parts, and a list with the name and figure of each: (text, share)."""
    styles = [f"fill{index % 8}" for index in range(len(parts))]
    left = 0.0
    pieces = []
    for style, (text, share) in zip(styles, parts, strict=True):
        at, width = percent(left), percent(share)
        pieces.append(tag("rect", tag("title", text), x=at, width=width, height="22", class_=style))
        left += share
    drawn = tag("svg", *pieces, width="100%", height=22, class_="parts", aria_hidden="true")
    return drawn + legend([(style, text) for style, (text, _) in zip(styles, parts, strict=True)])


def legend(names: Sequence[tuple[str, str]]) -> Markup:
    """Return a legend of (class of the line, the dot or the filled area, its meaning)."""
    items = []
    for style, text in names:
        if style.startswith("dot"):
            shape = tag("circle", cx=8, cy=6, r=4, class_=style)
        elif style.startswith("fill"):
            shape = tag("rect", width=12, height=12, class_=style)
        else:
            shape = tag("line", x1=0, x2=16, y1=6, y2=6, class_=style)
        items.append(tag("li", tag("svg", shape, class_="swatch", aria_hidden="true"), text))
    return tag("ul", *items, class_="legend")


def row(
    name: str, marks: Sequence[Markup], height: int, said: str = "", figure: str | None = None
) -> Markup:
    """Return a drawing with its name, and maybe figures, as text next to it. `said`: a description
    for readers who cannot see it; empty for a scale, which has no information for them."""
    label = {"role": "img", "aria_label": said} if said else {"aria_hidden": "true"}
    drawn = tag("svg", *marks, width="100%", height=height, class_="beside", **label)
    text = None if figure is None else tag("span", figure, class_="figure")
    return tag("div", tag("span", name, class_="name"), drawn, text, class_="row")


def tick(text: str, place: float, y: float) -> Markup:
    """A number below an axis, `place` between 0 and 1: at the ends it does not leave the width."""
    where = "start" if place < 0.03 else "end" if place > 0.97 else "middle"
    return tag("text", text, x=percent(place), y=y, class_=where)


def captioned(caption: object, drawing: Markup) -> Markup:
    return tag("figure", tag("figcaption", caption), drawing)


# Tables

# rows from which on a table has a field to filter it by
FILTERED = 8


def html(table: Table, identifier: str) -> Markup:
    """Return a table that can be sorted by its heads and filtered by a word, with a keyboard or a
    mouse. `identifier`: unique on the page."""
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
