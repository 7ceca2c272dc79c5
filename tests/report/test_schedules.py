"""Plans of parallelism on the page and for Perfetto."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections import defaultdict
from pathlib import Path

import divided
import msgspec
import pytest
import synthetic

from dltune.base.errors import UsageError
from dltune.base.tables import Tile, Tiles
from dltune.plan.plan import bare
from dltune.report.charts.tiles import NAMED, tiles
from dltune.report.page import page
from dltune.report.perfetto import trace
from dltune.report.sections import schedules
from dltune.views import Context, Loaded, Schedule, Slice, Track

NETWORK, CLUSTER = divided.network(), divided.cluster()
SECTION = divided.section(NETWORK, CLUSTER)
PLAN = bare(synthetic.machine(2), sections={"parallelism": SECTION})


def context(*documents: msgspec.Struct) -> Context:
    kinds = {type(NETWORK): "operators", type(CLUSTER): "topology", type(PLAN): "plan"}
    return Context(
        tuple(
            Loaded(Path(f"{kinds[type(one)]}.json"), f"dltune.{kinds[type(one)]}", one, f"d{n}")
            for n, one in enumerate(documents)
        )
    )


def drawn(text: str) -> dict[str, object]:
    (source,) = re.findall(r'<script type="application/json" id="[^"]*">(.*?)</script>', text)
    return dict(json.loads(source))


def test_a_page_with_what_the_plan_was_made_from_draws_the_step() -> None:
    text = page(context(PLAN, NETWORK, CLUSTER)).decode()
    source = drawn(text)
    assert source["end"] == round(SECTION.seconds * 1e9)
    (line,) = source["timelines"]
    assert {row["label"] for row in line["rows"]} <= {*SECTION.devices}
    for row in (*line["rows"], *line["links"]):
        at = 0
        for start, duration, name in zip(*[iter(row["slices"])] * 3, strict=True):
            at += start
            assert at + duration <= source["end"]
            assert 0 <= name < len(source["names"])
    assert "Divided operators" in text


def test_a_page_without_says_what_is_missing() -> None:
    text = page(context(PLAN, NETWORK)).decode()
    assert "No timeline of parallelism: the documents of small and small are missing" in text
    assert "application/json" not in text


def test_a_trace_has_a_row_for_each_device_and_link() -> None:
    events = json.loads(gzip.decompress(trace(context(PLAN, NETWORK, CLUSTER))))["traceEvents"]
    rows = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = round(event["ts"] * 1e3)
            rows[event["tid"]].append((start, start + round(event["dur"] * 1e3), event["cat"]))
    for slices in rows.values():
        slices.sort()
        assert len({category for _, _, category in slices}) == 1
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(slices))
    assert max(s[1] for slices in rows.values() for s in slices) == round(SECTION.seconds * 1e9)
    sent = sum(e["args"]["bytes"] for e in events if e["ph"] == "X" and e["cat"] == "transfer")
    assert sent == SECTION.bytes
    with pytest.raises(UsageError, match="are missing"):
        trace(context(PLAN))


def lane(label: str, count: int) -> Track:
    return Track(label, [Slice(f"w{n}", "k", 2 * n, 2 * n + 1) for n in range(count)])


def test_a_page_draws_as_much_as_there_is_room_for() -> None:
    busy, idle = [lane(f"d{n}", 10) for n in range(90)], [lane("idle", 0)] * 5
    links = [lane(f"l{n}", n) for n in range(1, 30)]
    found = schedules.within(Schedule("x", [*busy, *idle], links))
    assert [one.label for one in found.devices] == [one.label for one in busy]
    assert [one.label for one in found.links] == [f"l{n}" for n in range(24, 30)], "the busiest"
    text = str(schedules.schedule(Schedule("x", [*busy, *idle], links), "s"))
    assert "5 of 95 devices are idle." in text
    assert "Shown: 6 of 29 links." in text
    many = Schedule("x", [lane("a", schedules.MOST - 1), lane("b", 2), lane("c", 1)], [])
    assert [one.label for one in schedules.within(many).devices] == ["a"]


def test_names_in_pictures_are_shown_and_never_obeyed() -> None:
    evil = '"><script>alert(1)</script>'
    picture = Tiles(evil, [evil, "b"], [Tile(evil, evil, [[(0,), (1,)]])])
    text = str(tiles(picture))
    assert "<script" not in text
    assert text.count("<rect") == 2 + 2 + 2, "parts, their edges, and the legend"
    named = tiles(Tiles("t", [f"d{n}" for n in range(NAMED + 1)], picture.tiles[:0]))
    assert "Each of the 33 devices has its own colour" in str(named)
    line = Schedule(evil, [Track(evil, [Slice(evil, evil, 0, 1)])], [])
    assert "<script>alert" not in str(schedules.schedule(line, "s"))
