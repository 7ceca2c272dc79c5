"""The history as a picture: SVG, a chart for each limit, an interval for each gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from dltune.base.formatting import visible
from dltune.gate import figures
from dltune.gate.history import Entry, Point

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 150, 90, 20, 30, 24
MOST_GATES = 120
# distinct without colour too: each outcome has its own shape
COLOURS = {"pass": "#1a7f37", "fail": "#cf222e", "undecided": "#9a6700"}
STYLE = (
    "svg{background:#fff;font:12px sans-serif;fill:#1f2328}"
    ".line{stroke:#1f2328;stroke-dasharray:4 3;fill:none}.axis{stroke:#8c959f}"
    "@media(prefers-color-scheme:dark){svg{background:#0d1117;fill:#e6edf3}"
    ".line{stroke:#e6edf3}}"
)


def render(entries: Sequence[Entry]) -> str:
    """SVG of the last `MOST_GATES` gates, oldest on the left. An empty history is a picture that
    says so."""
    shown = entries[-MOST_GATES:]
    names = list(dict.fromkeys((p.metric, p.over) for e in shown for p in e.points))
    height = max(len(names), 1) * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="performance limits over time">',
        f"<style>{STYLE}</style>",
    ]
    if not names:
        parts.append(_text(LEFT, HEIGHT / 2, "no gate yet"))
    for number, name in enumerate(names):
        parts.append(f'<g transform="translate(0 {number * HEIGHT})">')
        parts += _chart(name, shown)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _chart(name: tuple[str, str], entries: Sequence[Entry]) -> list[str]:
    found = [
        (place, entry, point)
        for place, entry in enumerate(entries)
        for point in entry.points
        if (point.metric, point.over) == name and point.median is not None
    ]
    title = f"{visible(name[0], 80)}, {'ratio to the base' if name[1] == 'ratio' else 'value'}"
    parts = [_text(LEFT, 18, title, weight="bold")]
    if not found:
        return [*parts, _text(LEFT, HEIGHT / 2, "never measured")]
    values = [v for _, _, p in found for v in (p.median, p.low, p.high, p.limit) if v is not None]
    low, high = min(values), max(values)
    margin = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    low, high = low - margin, high + margin

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def x(place: int) -> float:
        return LEFT + (place + 0.5) / len(entries) * (WIDTH - LEFT - RIGHT)

    last = found[-1][2]
    bottom = HEIGHT - BOTTOM
    parts += [
        f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}" fill="none"/>',
        f'<path class="line" d="M{LEFT} {y(last.limit):.1f}H{WIDTH - RIGHT}"/>',
        _text(LEFT - 6, y(last.limit) + 4, figures.over(last, last.limit), "end"),
    ]
    for place, entry, point in found:
        parts += _mark(point, entry, x(place), y)
    first_day, last_day = found[0][1].created[:10], found[-1][1].created[:10]
    parts.append(_text(LEFT, HEIGHT - 8, first_day))
    parts.append(_text(WIDTH - RIGHT, HEIGHT - 8, last_day, "end"))
    return parts


def _mark(point: Point, entry: Entry, x: float, y: Callable[[float], float]) -> list[str]:
    colour = COLOURS[point.outcome]
    assert point.median is not None
    middle = y(point.median)
    figure = figures.over(point, point.median)
    told = f"{visible(entry.head, 60)} {visible(entry.created, 40)}: {figure}, {point.outcome}"
    parts: list[str] = [Markup("<g><title>{}</title>").format(told)]
    if point.low is not None and point.high is not None:
        parts.append(
            f'<path d="M{x:.1f} {y(point.low):.1f}V{y(point.high):.1f}" stroke="{colour}"/>'
        )
    shape = {
        "pass": f'<circle cx="{x:.1f}" cy="{middle:.1f}" r="3" fill="{colour}"/>',
        "fail": f'<path d="M{x - 4:.1f} {middle - 4:.1f}l8 8m0 -8l-8 8" stroke="{colour}" '
        'stroke-width="2"/>',
        "undecided": f'<circle cx="{x:.1f}" cy="{middle:.1f}" r="3" fill="none" '
        f'stroke="{colour}"/>',
    }[point.outcome]
    return [*parts, shape, "</g>"]


def _text(x: float, y: float, text: str, anchor: str = "start", weight: str = "normal") -> str:
    element = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}" font-weight="{}">{}</text>')
    return element.format(x, y, anchor, weight, visible(text))
