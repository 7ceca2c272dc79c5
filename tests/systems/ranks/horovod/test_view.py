"""Horovod's ranks on the page."""

from __future__ import annotations

from pathlib import Path

import hostile_ranks
from page_parsed import parsed

from dltune.report.page import page
from dltune.systems.ranks.horovod.schema import SCHEMA, Distribution, Horovod, Timeline
from dltune.views import Context, Loaded


def shown(report: Horovod) -> str:
    found = parsed(page(Context((Loaded(Path("h.json"), "dltune.horovod", report, "d0"),))))
    assert len(found.of("script")) == 1
    return found.of("main")[0].text


def test_everything_is_there_and_nothing_of_it_is_markup():
    text = shown(hostile_ranks.ranks())
    for part in (
        "it spins",
        "let it sleep",
        "Rank 0: 0.75 cores",
        "background: 25% of a core",
        "after 4.5 s, SIGKILL",
        "hvd.init() and stack",
        "CPU 0-1, bound",
        "20 collectives",
        "90% of them empty",
        "the watch was interrupted",
    ):
        assert part.lower() in text.lower(), part
    assert "\u202e" not in text


def test_a_timeline_alone():
    timeline = Timeline(
        "t", 1.0, 2, True, None, None, 0, Distribution(0), None, Distribution(0),
        Distribution(0), Distribution(0), {}, (),
    )  # fmt: skip
    text = shown(
        Horovod(SCHEMA, "", "", (), "", "", {}, False, (), timeline, ())
    )  # fmt: skip
    assert "No problem was found" in text
    assert "0 collectives" in text
