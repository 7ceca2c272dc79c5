"""Pictures of devices on the page."""

from __future__ import annotations

from dltune.base.formatting import Tile, Tiles
from dltune.report.plot import NAMED, tiles
from dltune.report.sections import timelines
from dltune.views import Schedule, Slice, Track


def lane(label: str, count: int) -> Track:
    return Track(label, [Slice(f"w{n}", "k", 2 * n, 2 * n + 1) for n in range(count)])


def test_a_page_draws_as_much_as_there_is_room_for() -> None:
    busy, idle = [lane(f"d{n}", 10) for n in range(90)], [lane("idle", 0)] * 5
    links = [lane(f"l{n}", n) for n in range(1, 30)]
    found = timelines.within(Schedule("x", [*busy, *idle], links))
    assert [one.label for one in found.devices] == [one.label for one in busy]
    assert [one.label for one in found.links] == [f"l{n}" for n in range(24, 30)], "the busiest"
    text = str(timelines.schedule(Schedule("x", [*busy, *idle], links), "s"))
    assert "5 of 95 devices are idle." in text
    assert "Shown: 6 of 29 links." in text
    many = Schedule("x", [lane("a", timelines.MOST - 1), lane("b", 2), lane("c", 1)], [])
    assert [one.label for one in timelines.within(many).devices] == ["a"]


def test_names_in_pictures_are_shown_and_never_obeyed() -> None:
    evil = '"><script>alert(1)</script>'
    picture = Tiles(evil, [evil, "b"], [Tile(evil, evil, [[(0,), (1,)]])])
    text = str(tiles(picture))
    assert "<script" not in text
    assert text.count("<rect") == 2 + 2 + 2, "parts, their edges, and the legend"
    named = tiles(Tiles("t", [f"d{n}" for n in range(NAMED + 1)], picture.tiles[:0]))
    assert "Each of the 33 devices has its own colour" in str(named)
    line = Schedule(evil, [Track(evil, [Slice(evil, evil, 0, 1)])], [])
    assert "<script>alert" not in str(timelines.schedule(line, "s"))
