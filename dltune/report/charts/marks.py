"""Parts of pictures: bars, rows with a name next to the drawing, captions and legends."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.report.markup import Markup, tag


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
