"""Tables of documents: that all of a document is in them, and how they are called."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import table_checks
from any_document import documents
from hypothesis import given, settings
from hypothesis import strategies as st

from dltune.base.errors import UsageError
from dltune.report.export import History
from dltune.report.table import DOCUMENT, Table, named, names, tables
from dltune.schemas.bench import Bench, Ratio, Tune
from dltune.schemas.diagnosis import Diagnosis
from dltune.schemas.gate import Baseline, Result
from dltune.schemas.graph import Graph
from dltune.schemas.io import Io
from dltune.schemas.machine import Machine, Roofs
from dltune.schemas.plan import Threads
from dltune.schemas.profile import Profile
from dltune.schemas.settings import Choice, SettingsPlan


class Numbered(msgspec.Struct):
    many: tuple[float, ...]
    one: int


class Chosen(msgspec.Struct):
    choices: tuple[Choice, ...]
    limits: Ratio | None


class Sections(msgspec.Struct):
    sections: dict[str, Any]


# a plan's sections are what their planners make them: below
SECTIONS = (Threads, SettingsPlan)
KINDS = (
    *(
        Baseline,
        Bench,
        Diagnosis,
        Graph,
        History,
        Io,
        Machine,
        Profile,
        Result,
        Roofs,
        Tune,
    ),
    *SECTIONS,
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(data=st.data())
def test_all_of_a_document_is_in_its_tables_once(kind, data):
    table_checks.require_all_content_once(data.draw(documents(kind)))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(data=st.data())
def test_cells_are_of_their_columns_kinds_and_columns_have_names_of_their_own(kind, data):
    table_checks.require_typed_columns(data.draw(documents(kind)))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3)
@given(data=st.data())
def test_each_table_is_found_by_the_name_that_is_told(kind, data):
    table_checks.require_names(data.draw(documents(kind)))


def test_rows_tell_where_they_stand():
    from examples import searched

    found = tables(searched())
    ratios = found["trials.ratios"]
    assert [c.name for c in ratios.columns] == ["trials", "trials.candidate", "ratios", "value"]
    assert list(ratios.rows()) == [
        (0, "batch_norm=fused", 0, 0.75),
        (0, "batch_norm=fused", 1, 0.5),
    ]
    assert [row[1] for row in found["trials"].rows()] == [
        "batch_norm=fused",
        "batch_norm=fused, onednn_primitives=kept",
    ]


def test_sections_of_different_types_are_told_by_what_is_there():
    choices = Choice("allocator", "tcmalloc"), Choice("xla", "auto")
    found = tables(Sections({"a": Numbered((0.5, 0.25), 7), "b": Chosen(choices, None)}))
    assert list(found) == [DOCUMENT, "sections.a.many"]
    heads = [column.name.removeprefix("sections.") for column in found[DOCUMENT].columns]
    limits = [f"b.limits.{name}" for name in ("median", "low", "high", "confidence", "rounds")]
    assert heads == ["a.one", "b.choices", *limits]
    assert list(found[DOCUMENT].rows()) == [(7, "allocator=tcmalloc, xla=auto", *[None] * 5)]
    assert list(found["sections.a.many"].rows()) == [(0, 0.5), (1, 0.25)]
    assert named(found, "many").path == "sections.a.many"


def test_a_name_that_no_table_has_or_several_have():
    found = {path: Table(path, (), lambda: iter(())) for path in ("a.x", "b.x", "b.y", "x.z")}
    assert names(found) == ["a.x", "b.x", "y", "z"]
    with pytest.raises(UsageError, match="there is no table 'w'") as none:
        named(found, "w")
    assert none.value.remedy == "name one of: a.x, b.x, y, z"
    with pytest.raises(UsageError, match="several tables end in 'x'"):
        named(found, "x")


def test_what_the_document_is_of_goes_before_what_stands_beside_it():
    paths = ("steps.nodes", "peers.nodes", "peers", "peers.others")
    found = {path: Table(path, (), lambda: iter(())) for path in paths}
    assert names(found) == ["nodes", "peers.nodes", "peers", "peers.others"]
    assert named(found, "nodes").path == "steps.nodes"
    assert named(found, "peers.nodes").path == "peers.nodes"
    assert named(found, "others").path == "peers.others"
