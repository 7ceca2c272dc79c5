"""What each device and each link does in a simulated step, to be zoomed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from dltune.planners.shown import Lane, Schedule, Work, counted
from dltune.report.markup import Markup, joined, tag
from dltune.report.sections.timelines import COLOURS, NAME, zoomable
from dltune.visible import visible

# slices on one page, and rows: a picture of more is none
MOST, ROWS = 100_000, 96


def schedule(shown: Schedule, identifier: str) -> Markup:
    drawn = within(shown)
    kinds: Counter[str] = Counter()
    for work in _works((*drawn.devices, *drawn.links)):
        kinds[work.kind] += work.end - work.start
    heavy = [kind for kind, _ in kinds.most_common(COLOURS)]
    label = f"{shown.title}. Arrow keys move, plus and minus zoom, n and p go from op to op."
    return joined(
        [
            *(tag("p", f"{sentence}.") for sentence in _left_out(shown, drawn)),
            zoomable(identifier, label, heavy, encoded(drawn, heavy)),
        ]
    )


def within(shown: Schedule) -> Schedule:
    """As much of it as a page can draw: devices that have anything to do first, then the links that
    are busy the longest."""
    busy = sorted(shown.links, key=lambda lane: -sum(w.end - w.start for w in lane.works))
    kept: set[int] = set()
    room = MOST
    for lane in (*filter(lambda lane: lane.works, shown.devices), *busy):
        room -= len(lane.works)
        if room < 0 or len(kept) == ROWS:
            break
        kept.add(id(lane))
    return Schedule(
        shown.title,
        [lane for lane in shown.devices if id(lane) in kept],
        [lane for lane in shown.links if id(lane) in kept],
    )


def _left_out(shown: Schedule, drawn: Schedule) -> Iterable[str]:
    working = [lane for lane in shown.devices if lane.works]
    if idle := len(shown.devices) - len(working):
        yield f"{idle} of {counted(len(shown.devices), 'device')} are idle"
    for what, some, every in (
        ("device", drawn.devices, working),
        ("link", drawn.links, shown.links),
    ):
        if len(some) < len(every):
            yield f"Shown: {len(some)} of {counted(len(every), what)}"


def encoded(shown: Schedule, heavy: Sequence[str]) -> bytes:
    """Names and slices for the script, as those of a step's ops."""
    colour = {kind: index for index, kind in enumerate(heavy)}
    number: dict[tuple[str, str], int] = {}
    for work in _works((*shown.devices, *shown.links)):
        number.setdefault((work.name, work.kind), len(number))
    names = [visible(name, NAME) for name, _ in number]

    def rows(lanes: Sequence[Lane]) -> list[dict[str, object]]:
        return [{"label": visible(one.label, NAME), "slices": _flat(one, number)} for one in lanes]

    line = {
        "title": shown.title,
        "end": shown.end,
        "links": rows(shown.links),
        "rows": rows(shown.devices),
    }
    return msgspec.json.encode(
        {
            "keys": [],
            "names": names,
            "ops": [-1] * len(names),
            "colours": [colour.get(kind, -1) for _, kind in number],
            "end": shown.end,
            "timelines": [line],
        }
    )


def _flat(lane: Lane, number: dict[tuple[str, str], int]) -> list[int]:
    flat: list[int] = []
    before = 0
    for work in lane.works:
        flat += (work.start - before, work.end - work.start, number[work.name, work.kind])
        before = work.start
    return flat


def _works(lanes: Iterable[Lane]) -> Iterable[Work]:
    return (work for lane in lanes for work in lane.works)
