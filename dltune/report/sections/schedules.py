"""What each device and each link does in a simulated step, to be zoomed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from dltune.base.formatting import counted, visible
from dltune.report.markup import Markup, joined, tag
from dltune.report.sections.timelines import COLOURS, NAME, zoomable
from dltune.views import Schedule, Slice, Track

# slices on one page, and rows: a picture of more is none
MOST, ROWS = 100_000, 96


def schedule(shown: Schedule, identifier: str) -> Markup:
    drawn = within(shown)
    kinds: Counter[str] = Counter()
    for each in _slices((*drawn.devices, *drawn.links)):
        kinds[each.kind] += each.end - each.start
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
    busy = sorted(shown.links, key=lambda track: -sum(w.end - w.start for w in track.slices))
    kept: set[int] = set()
    room = MOST
    for track in (*filter(lambda track: track.slices, shown.devices), *busy):
        room -= len(track.slices)
        if room < 0 or len(kept) == ROWS:
            break
        kept.add(id(track))
    return Schedule(
        shown.title,
        [track for track in shown.devices if id(track) in kept],
        [track for track in shown.links if id(track) in kept],
    )


def _left_out(shown: Schedule, drawn: Schedule) -> Iterable[str]:
    working = [track for track in shown.devices if track.slices]
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
    for each in _slices((*shown.devices, *shown.links)):
        number.setdefault((each.name, each.kind), len(number))
    names = [visible(name, NAME) for name, _ in number]

    def rows(tracks: Sequence[Track]) -> list[dict[str, object]]:
        return [{"label": visible(one.label, NAME), "slices": _flat(one, number)} for one in tracks]

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


def _flat(track: Track, number: dict[tuple[str, str], int]) -> list[int]:
    flat: list[int] = []
    before = 0
    for each in track.slices:
        flat += (each.start - before, each.end - each.start, number[each.name, each.kind])
        before = each.start
    return flat


def _slices(tracks: Iterable[Track]) -> Iterable[Slice]:
    return (each for track in tracks for each in track.slices)
