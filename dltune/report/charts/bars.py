"""Bars: one in a table's cell, and one divided into parts."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.report.markup import Markup, tag


def bar(share: float, style: str = "bar") -> Markup:
    """A part of the cell's width, `share` between 0 and 1; the number beside it says it in text."""
    width = f"{100 * min(1.0, max(0.0, share)):.1f}%"
    return tag(
        "svg", tag("rect", width=width, height="10", rx="2"), class_=style, aria_hidden="true"
    )


def divided(parts: Sequence[tuple[str, float]]) -> Markup:
    """A bar of all parts, and a list with the name and figure of each: (text, share)."""
    left = 0.0
    pieces, names = [], []
    for index, (text, share) in enumerate(parts):
        pieces.append(
            tag(
                "rect",
                tag("title", text),
                x=f"{100 * left:.2f}%",
                width=f"{100 * share:.2f}%",
                height="22",
                class_=f"fill{index % 8}",
            )
        )
        swatch = tag(
            "svg", tag("rect", width=12, height=12, class_=f"fill{index % 8}"), class_="swatch",
            aria_hidden="true",
        )  # fmt: skip
        names.append(tag("li", swatch, text))
        left += share
    drawn = tag("svg", *pieces, width="100%", height=22, class_="parts", aria_hidden="true")
    return drawn + tag("ul", *names, class_="legend")


def legend(names: Sequence[tuple[str, str]]) -> Markup:
    """(class of the line or dot, what it is)."""
    found = []
    for style, text in names:
        shape = (
            tag("circle", cx=8, cy=6, r=4, class_=style)
            if style.startswith("dot")
            else tag("line", x1=0, x2=16, y1=6, y2=6, class_=style)
        )
        found.append(tag("li", tag("svg", shape, class_="swatch", aria_hidden="true"), text))
    return tag("ul", *found, class_="legend")
