"""Text becomes markup in one place, and what it holds is shown."""

from __future__ import annotations

import json
from importlib import resources

from hypothesis import given
from hypothesis import strategies as st
from page_parsed import parsed

from dltune.base.formatting import Table, columns, visible
from dltune.report.markup import LONGEST, Markup, data, escaped, rendered, short, tag


@given(st.text(max_size=300))
def test_text_never_becomes_an_element(text: str) -> None:
    page = parsed(tag("p", text, title=text, data_x=text).encode())
    shown = visible(text, LONGEST)
    assert [element.name for element in page.elements] == ["p"]
    assert page.elements[0].text == shown
    assert page.elements[0].attributes == {
        "title": visible(text, LONGEST),
        "data-x": visible(text, LONGEST),
    }


@given(st.text(max_size=300))
def test_what_cannot_be_seen_is_written_out(text: str) -> None:
    seen = visible(text, LONGEST)
    assert seen.isprintable()
    assert visible(seen, LONGEST) == seen


def test_direction_marks_and_control_characters() -> None:
    assert visible("a\u202eb\x1b[31m\n\x00\u200b") == "a\\u202eb\\x1b[31m\\n\\x00\\u200b"
    assert visible("Größe μ 矩阵") == "Größe μ 矩阵"


def test_long_names_are_cut_in_the_middle() -> None:
    name = "a" * 10_000 + "end"
    assert len(short(name)) == 240
    assert short(name).endswith("aend")
    assert "…" in short(name)
    assert len(escaped("x" * 10_000)) == LONGEST


@given(st.text(max_size=100))
def test_a_template_escapes_as_tags_do(text: str) -> None:
    shown = rendered("table.html", table=Table("", columns(text), []), rows=[], filtered=0,
                     caption=text, identifier="x", drawn=str)  # fmt: skip
    page = parsed(shown.encode())
    assert page.of("caption")[0].text == visible(text, LONGEST)
    assert page.of("div")[0].attributes["aria-label"] == visible(text, LONGEST)


def test_no_template_leaves_anything_as_it_is() -> None:
    for file in (resources.files("dltune.report") / "assets").iterdir():
        if file.name.endswith(".html"):
            told = file.read_text(encoding="utf-8")
            assert "safe" not in told
            assert "autoescape" not in told


def test_markup_is_escaped_once() -> None:
    inner = tag("b", "<&>")
    assert tag("p", inner) == "<p><b>&lt;&amp;&gt;</b></p>"
    assert tag("p", [inner, None, ["x"]]) == "<p><b>&lt;&amp;&gt;</b>x</p>"


def test_names_of_attributes_are_those_of_html() -> None:
    shown = tag("svg", class_="bar", view_box="0 0 1 1", preserve_aspect_ratio="none", data_x=1)
    assert isinstance(shown, Markup)
    assert shown == (
        '<svg class="bar" viewBox="0 0 1 1" preserveAspectRatio="none" data-x="1"></svg>'
    )


@given(st.text(max_size=100))
def test_data_ends_nowhere_but_at_its_end(text: str) -> None:
    content = json.dumps({"name": text, "end": "</script><!--"}).encode()
    page = parsed(data("source", content).encode())
    assert [element.name for element in page.elements] == ["script"]
    assert json.loads(page.elements[0].text) == json.loads(content)
