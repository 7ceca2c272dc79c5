"""The settings of a plan on the page: the picture, its text, the tables."""

from __future__ import annotations

import math
from pathlib import Path

import exhibits
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_parsed import Page, parsed

from dltune.base.formatting import Ratio, Ratios
from dltune.plan.plan import with_sections
from dltune.report.page import page
from dltune.report.plot import HALVES, around, forest
from dltune.schemas.settings import Choice, SettingsPlan, Untried
from dltune.views import Context, Loaded

EVIL = "<script>alert(1)</script>\u202e"


def shown(section: SettingsPlan) -> Page:
    profile = exhibits.profile()
    plan = with_sections(exhibits.plan(profile), threads=None, settings=section)
    return parsed(page(Context((Loaded(Path("plan.json"), "dltune.plan", plan, "d0"),))))


def table(found: Page, caption: str) -> str:
    return next(t.text for t in found.of("table") if caption in t.text)


def test_each_trial_has_its_row_its_figures_and_its_verdict() -> None:
    found = shown(exhibits.settings())
    labels = [e.attributes["aria-label"] for e in found.of("svg") if e.attributes.get("role")]
    assert labels == [
        "batch_norm=fused: helps 0.860 (0.840 to 0.890)",
        "allocator=tcmalloc, with batch_norm=fused: helps 0.930 (0.900 to 0.970)",
        "xla=auto, with batch_norm=fused: hurts 2.400 (1.800 to ∞)",
        "input_threads=1, with batch_norm=fused: no difference seen 1.002 (0.990 to 1.010)",
        "threads=2x1: not proven 1.166 (0.994 to 1.517)",
        "onednn=off: undecided 1.100 (too few rounds for an interval)",
        "jit_compile=on: failed",
        "steps_per_execution=8: no effect",
        "all that was chosen: 0.800 (0.780 to 0.830)",
        "all that was chosen, against the recommended threads: 0.850 (0.820 to 0.900)",
    ]
    texts = [e.text for e in found.of("span")]
    for label in labels:
        assert label is not None
        assert set(label.split(": ")) <= set(texts), "what is drawn stands there as text"


def test_the_tables_have_all_that_was_tried_and_all_that_was_not() -> None:
    found = shown(exhibits.settings())
    tried = table(found, "Time ratio: step time with the setting")
    for word in ("hurts", "1.800 to ∞ (99.5 %)", "the job ended with code 1", "rounding"):
        assert word in tried
    not_tried = table(found, "were not tried")
    assert "mpi_yieldany" in not_tried
    assert "libmimalloc is not installed" in not_tried


def test_what_was_found() -> None:
    told = parsed_found(shown(exhibits.settings()))
    assert told == (
        "Compared with the job as found, the job with allocator=tcmalloc, batch_norm=fused is "
        "1.25x as fast (time ratio 0.800, 99 % interval 0.780 to 0.830, 14 rounds). Compared with "
        "the recommended threads, it is 1.18x as fast."
    )
    unproven = shown(msgspec.structs.replace(exhibits.settings(), whole=None, recommended=None))
    assert parsed_found(unproven) == (
        "Chosen: allocator=tcmalloc, batch_norm=fused; the total gain was not measured."
    )
    nothing = msgspec.structs.replace(exhibits.settings(), chosen=(), whole=None, recommended=None)
    found = shown(nothing)
    assert parsed_found(found).startswith("No setting was proven to make")
    assert "Chosen: the job as found" in found.of("main")[0].text


def parsed_found(found: Page) -> str:
    return next(p.text for p in found.of("p") if "found" in p.path or "section" in p.path)


def test_a_section_without_trials() -> None:
    bare = msgspec.structs.replace(
        exhibits.settings(), chosen=(), whole=None, recommended=None, effects=(), untried=(),
        partial="interrupted",
    )  # fmt: skip
    text = shown(bare).of("main")[0].text
    assert "The search is incomplete: interrupted." in text
    assert "not tried" not in text


def test_names_are_shown_and_never_obeyed() -> None:
    section = exhibits.settings()
    effect = msgspec.structs.replace(section.effects[0], choices=(Choice(EVIL, EVIL),), why=EVIL)
    evil = msgspec.structs.replace(
        section,
        chosen=(Choice(EVIL, EVIL),),
        effects=(effect,),
        untried=(Untried(EVIL, EVIL, EVIL),),
    )
    found = shown(evil)
    assert len(found.of("script")) == 1
    assert "alert(1)" in found.of("main")[0].text
    assert "\u202e" not in found.of("main")[0].text


@given(st.lists(st.floats(1e-4, 1e4), max_size=6))
def test_the_axis_lies_even_around_1_and_holds_what_it_can(values: list[float]) -> None:
    axis = around(values)
    assert axis.at(1.0) == pytest.approx(0.5)
    furthest = max((abs(math.log(value)) for value in values), default=0.0)
    assert axis.high >= math.exp(min(furthest, 2 * math.log(HALVES[-1]))) * (1 - 1e-9)


def test_ends_that_are_not_known_are_drawn_open() -> None:
    def lines(low: float | None, high: float | None) -> list[dict[str, str | None]]:
        drawn = parsed(forest(Ratios([Ratio("x", "", "open", 1.1, low, high)], "l", "r")).encode())
        return [
            e.attributes for e in drawn.of("line") if "interval" in str(e.attributes.get("class"))
        ]

    across, *bars = lines(1.05, None)
    assert len(bars) == 1
    assert across["x2"] == "100.00%"
    across, *bars = lines(None, None)
    assert bars == []
    assert (across["x1"], across["x2"]) == ("0.00%", "100.00%")
    assert len(lines(0.9, 1.2)) == 3
