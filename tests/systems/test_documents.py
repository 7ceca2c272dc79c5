"""Documents of all systems that are installed: as tables, as frames and as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import table_checks
from any_document import documents
from hypothesis import given, settings
from hypothesis import strategies as st
from installed import exhibits

from dltune import extensions
from dltune.report import export

EXHIBITS = exhibits()
TYPES = [kind for each in EXHIBITS.values() for kind in each.TYPES]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Path]]:
    """By system and name."""
    folder = tmp_path_factory.mktemp("documents")
    found: dict[str, dict[str, Path]] = {}
    for system, each in EXHIBITS.items():
        for name, document in each.documents().items():
            path = folder / f"{system}-{name.replace(':', '-')}.json"
            path.write_bytes(msgspec.json.encode(document))
            found.setdefault(system, {})[name] = path
    return found


@pytest.mark.parametrize("system", EXHIBITS)
def test_every_table_of_every_kind(written: dict[str, dict[str, Path]], system: str) -> None:
    (extension,) = (each for each in extensions.own() if each.name == system)
    kinds = {name.partition(":")[0] for name in written[system]}
    assert set(extension.documents) <= kinds
    for path in written[system].values():
        table_checks.require_readable(path)


@pytest.mark.parametrize("system", EXHIBITS)
def test_the_main_table_of_a_kind(written: dict[str, dict[str, Path]], system: str) -> None:
    main = EXHIBITS[system].MAIN
    assert {name: export.table(written[system][name]).path for name in main} == main


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=25)
@given(data=st.data())
def test_all_of_a_document_is_in_its_tables_once(kind: type, data: Any) -> None:
    table_checks.require_all_content_once(data.draw(documents(kind)))


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=10)
@given(data=st.data())
def test_cells_are_of_their_columns_kinds_and_columns_have_names_of_their_own(
    kind: type, data: Any
) -> None:
    table_checks.require_typed_columns(data.draw(documents(kind)))


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=3)
@given(data=st.data())
def test_each_table_is_found_by_the_name_that_is_told(kind: type, data: Any) -> None:
    table_checks.require_names(data.draw(documents(kind)))
