"""Rectangles cut into coloured parts, one beside the other."""

from __future__ import annotations

from dltune.base.formatting import Tile, Tiles
from dltune.report.markup import Markup, joined, short, tag

WIDTH, HEIGHT = 96, 64  # pixels of a rectangle
# colours that are named one by one
NAMED = 32
# degrees between hues that follow each other, the golden angle: neighbours are told apart
TURN = 137.508


def tiles(drawing: Tiles) -> Markup:
    title = drawing.title[:1].upper() + drawing.title[1:]
    figures = [_figure(one, drawing) for one in drawing.tiles]
    return joined([tag("p", f"{title}."), _legend(drawing), tag("div", *figures, class_="tiles")])


def _figure(one: Tile, drawing: Tiles) -> Markup:
    marks = []
    tall = HEIGHT / len(one.parts)
    for y, row in enumerate(one.parts):
        wide = WIDTH / len(row)
        for x, part in enumerate(row):
            names = ", ".join(drawing.colours[colour] for colour in part)
            stripes = [
                tag(
                    "rect",
                    x=f"{x * wide:.2f}",
                    y=f"{y * tall + n * tall / len(part):.2f}",
                    width=f"{wide:.2f}",
                    height=f"{tall / len(part):.2f}",
                    fill=_colour(colour, len(drawing.colours)),
                )
                for n, colour in enumerate(part)
            ]
            edge = tag(
                "rect",
                x=f"{x * wide:.2f}",
                y=f"{y * tall:.2f}",
                width=f"{wide:.2f}",
                height=f"{tall:.2f}",
                class_="edge",
            )
            marks.append(tag("g", tag("title", names), *stripes, edge))
    label = f"{one.name}: {one.text}"
    drawn = tag("svg", *marks, width=WIDTH, height=HEIGHT, role="img", aria_label=short(label))
    caption = tag("figcaption", tag("b", short(one.name)), tag("span", one.text))
    return tag("figure", drawn, caption)


def _legend(drawing: Tiles) -> Markup:
    count = len(drawing.colours)
    if count > NAMED:
        return tag(
            "p",
            f"Each of the {count} devices has its own colour; point at a tile to see its device.",
        )
    items = []
    for number, name in enumerate(drawing.colours):
        fill = _colour(number, count)
        shape = tag("rect", width=12, height=12, fill=fill)
        items.append(tag("li", tag("svg", shape, class_="swatch", aria_hidden="true"), short(name)))
    return tag("ul", *items, class_="legend")


def _colour(number: int, count: int) -> str:
    """Hues around the circle; where there are many, they go around in turns."""
    hue = number * 360 / count if count <= 12 else number * TURN % 360
    light = 62 if number % 2 else 50
    return f"hsl({hue:.0f}, 65%, {light}%)"
