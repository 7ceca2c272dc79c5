"""Gate results and I/O reports on the page."""

from __future__ import annotations

from pathlib import Path

import msgspec
import results
from page_parsed import parsed

from dltune.report.page import page
from dltune.views import Context, Loaded


def text(document: msgspec.Struct, kind: str) -> str:
    loaded = Loaded(Path("result.json"), kind, document, "d0")
    found = parsed(page(Context((loaded,))))
    assert len(found.of("script")) == 1
    return found.of("main")[0].text


def test_a_gate() -> None:
    told = text(results.gated("fail"), "dltune.gate")
    assert "Limits do not hold: time <script>" in told
    assert "1.150 to 1.250" in told
    assert "100 ms" in told
    assert "All 1 limits hold" in text(results.gated("pass"), "dltune.gate")
    assert "undecided" in text(results.gated("undecided"), "dltune.gate")


def test_a_reading_that_was_watched() -> None:
    told = text(results.watched(), "dltune.io")
    assert "Reading is held up by page faults. 12 of them." in told
    assert "4.00" in told
    assert "25.0%" in told
    assert "no tracepoints" in told


def test_a_file_read_in_every_way() -> None:
    told = text(results.read_in_every_way(), "dltune.io")
    assert "The fastest reading was 400 MiB/s" in told
    assert "4 at a time" in told
    assert "reaches 25% of that" in told
    assert "1000.0" in told, "microseconds of latency"
    assert "This report is partial: interrupted." in told
