"""What is written for CI systems: right, and harmless whatever the names."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import decided
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.base.formatting import visible
from dltune.gate import formats, verdicts
from dltune.gate.formats import interval, quantity, sentence, svg
from dltune.schemas import gate as doc

ANY_TEXT = st.text(st.characters(), max_size=60) | st.sampled_from(decided.HOSTILE)


def test_junit_has_a_test_for_each_limit() -> None:
    root = ET.fromstring(
        formats.junit(
            decided.result(
                decided.verdict(),
                decided.verdict("time", "fail"),
                decided.verdict(
                    "startup", "undecided", rounds=0, median=None, why="not measured: x"
                ),
            )
        )
    )
    (suite,) = root
    assert {k: suite.get(k) for k in ("tests", "failures", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "skipped": "1",
    }
    kinds = [[child.tag for child in case] for case in suite]
    assert kinds == [["system-out"], ["failure"], ["skipped"]]
    assert "limit 1.030, after 12 rounds" in (suite[1][0].text or "")


def test_undecided_is_a_failure_where_it_means_that() -> None:
    strict = decided.verdict(outcome="undecided", passed=False)
    tolerated = decided.verdict("time", outcome="undecided", passed=True)
    result = decided.result(strict, tolerated, passed=False, outcome="undecided")
    (suite,) = ET.fromstring(formats.junit(result))
    assert (suite.get("failures"), suite.get("skipped")) == ("1", "1")
    levels = [line.split(" ")[0] for line in formats.github(result).splitlines()]
    assert levels == ["::error", "::warning"]


@given(ANY_TEXT)
def test_any_name_gives_xml_that_parses(name: str) -> None:
    result = decided.result(
        decided.verdict(name, "fail", why=name), decided.verdict(name, "undecided")
    )
    (suite,) = ET.fromstring(formats.junit(result))
    assert [case.tag for case in suite] == ["testcase", "testcase"]
    ET.fromstring(svg([verdicts.entry(result, paired=True)]))


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attributes: object) -> None:
        self.tags.add(tag)


@given(ANY_TEXT)
def test_any_name_is_inert_in_markdown(name: str) -> None:
    result = decided.result(
        decided.verdict(name, why=name),
        decided.verdict(name, "undecided", why=name),
        base=doc.Revision(name, None),
        command=(name,),
        notes=(name,),
    )
    text = formats.markdown(result)
    parser = _Tags()
    parser.feed(text)
    assert parser.tags <= {"code", "sub"}
    for inner in re.findall("<code>(.*?)</code>", text, re.S):
        assert all(c.isalnum() or c in " &#;" for c in inner)
    plain = decided.result(decided.verdict(), decided.verdict(outcome="undecided"), notes=("n",))
    assert text.count("\n") == formats.markdown(plain).count("\n")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {row.count("|") for row in rows} == {9}


@given(ANY_TEXT)
def test_any_name_is_one_workflow_command(name: str) -> None:
    lines = formats.github(decided.result(decided.verdict(name, "fail", why=name))).splitlines()
    assert len(lines) == 1
    command, title, _ = re.fullmatch(r"::(\w+) title=([^:,]*)::(.*)", lines[0]).groups()  # type: ignore[union-attr]
    assert command == "error"
    assert title.startswith("dltune gate%3A ")


@given(ANY_TEXT)
def test_gitlab_s_report_is_json_with_a_stable_fingerprint(name: str) -> None:
    first, again = (
        json.loads(
            formats.gitlab(
                decided.result(decided.verdict(name, "fail", median=median)), "gate.toml"
            )
        )
        for median in (1.1, 1.2)
    )
    assert first[0]["fingerprint"] == again[0]["fingerprint"]
    assert first[0]["location"] == {"path": "gate.toml", "lines": {"begin": 1}}
    passed = formats.gitlab(decided.result(decided.verdict(name)), "gate.toml")
    assert json.loads(passed) == []


@given(ANY_TEXT)
def test_what_a_terminal_gets_is_seen(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable()
    assert len(shown) <= 2100
    assert not re.search("[\u200e\u200f\u202a-\u202e\u2066-\u2069\x00-\x1f\x7f-\x9f]", shown)


def test_plain_names_stay_as_they_are() -> None:
    name = "ops:*Conv2D*(float[64,8,8,128]) größer 日本"
    assert visible(name) == name


def test_figures() -> None:
    assert quantity(0.0123, "s") == "12.3 ms"
    assert quantity(3 * 2**20, "bytes") == "3 MiB"
    assert quantity(None, "s") == "-"
    assert interval(decided.verdict(low=None, high=None)) == "-"
    assert sentence(decided.verdict()).startswith(
        "step_time: ratio to the base 1.010 (0.990 to 1.020), limit 1.030, after 12 rounds: pass"
    )


def test_the_trend_shows_each_limit_and_gate() -> None:
    entries = [
        verdicts.entry(
            decided.result(decided.verdict(median=m), decided.verdict("time", "fail")), paired=True
        )
        for m in (1.0, 1.01, 1.02)
    ]
    picture = svg(entries)
    assert picture.count("<circle") == 3
    assert picture.count("<title>") == 6
    assert "no gate yet" in svg([])


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_trend_without_any_range(value: float) -> None:
    flat = decided.verdict(median=value, low=value, high=value, limit=value)
    ET.fromstring(svg([verdicts.entry(decided.result(flat), paired=True)]))


def test_a_result_comes_back_from_its_file() -> None:
    result = decided.result(decided.verdict(), decided.verdict("time", "fail"))
    assert msgspec.json.decode(msgspec.json.encode(result), type=doc.Result) == result
