"""A table is written once; a terminal and a page each draw it in their own way."""

from __future__ import annotations

from msgspec.structs import replace
from page_parsed import parsed

from dltune.base.formatting import Bar, Figure, Key, Prose, Table, columns
from dltune.cli import terminal
from dltune.report.markup import html, tag

LONG = "Conv2D(" + "x" * 200 + ")"


def _table(*rows):
    heads = columns("op", ">bytes", ">share", "", "+>kernel s", "why")
    return Table("ops", heads, rows)


def _row(key=LONG):
    figure = Figure("1.5 GiB", 1.5 * 2**30)
    return (Key(key), figure, "50%", Bar(0.5), "0.1", Prose("it waits for memory " * 10))


def test_a_terminal_leaves_out_what_is_for_a_page_and_cuts_to_its_width(capsys):
    terminal.show(_table(_row()))
    blank, title, heads, row = capsys.readouterr().out.splitlines()
    assert (blank, title) == ("", "ops")
    assert heads.split() == ["op", "bytes", "share", "why"]
    assert row.startswith("Conv2D(xxx")
    assert "… " in row
    assert row.endswith("…")
    assert len(row) <= terminal.WIDTH


def test_the_end_of_a_key_can_be_what_tells(capsys):
    rows = [(Key("scope/" * 40 + "kernel", end=True),)]
    terminal.show(Table("tensors", columns("tensor"), rows))
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.startswith("…")
    assert row.endswith("scope/kernel")


def test_rows_left_out_are_told(capsys):
    table = _table(*[_row()] * 5)
    terminal.show(table, most=2)
    assert "ops, 2 of 5" in capsys.readouterr().out
    assert "Ops, 2 of 5" in html(replace(table, most_on_page=2), "ops")


def test_a_name_cannot_steer_a_terminal(capsys):
    terminal.show(Table("a\x1b[2J", columns("name"), [("b\x1b]0;\n",), (Key("c\r"),)]))
    assert capsys.readouterr().out == "\na\\x1b[2J\nname\nb\\x1b]0;\\n\nc\\r\n"


def test_a_page_has_every_column_and_sorts_by_values():
    page = parsed(html(_table(_row(), ("<b>", *_row()[1:])), "ops").encode())
    heads = [e.text for e in page.elements if e.name == "button"]
    assert heads == ["op", "bytes", "share", "kernel s", "why"]
    values = [e.attributes["data-value"] for e in page.elements if "data-value" in e.attributes]
    assert values == ["1610612736.0"] * 2
    assert not [e for e in page.elements if e.name == "b"]


def test_a_drawing_is_for_a_page(capsys):
    table = Table("curves", columns("op", ""), [("a", tag("svg"))])
    terminal.show(table)
    assert capsys.readouterr().out == "\ncurves\nop\na\n"
    assert "<svg></svg>" in html(table, "curves")


def test_a_table_without_rows(capsys):
    terminal.show(_table())
    assert capsys.readouterr().out.splitlines()[-1].split() == ["op", "bytes", "share", "why"]


def test_a_terminal_takes_nothing_for_markup(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    terminal.show(Table("runs of [red]", columns("name"), [("[bold]x",)]))
    told = capsys.readouterr().out
    assert "[red]" in told
    assert "[bold]x" in told
