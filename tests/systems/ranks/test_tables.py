"""Tables of a report on ranks."""

from __future__ import annotations

from pathlib import Path

import hostile_ranks
import msgspec

from dltune.report import export


def test_rows_of_dictionaries(tmp_path: Path) -> None:
    path = tmp_path / "ranks.json"
    path.write_bytes(msgspec.json.encode(hostile_ranks.ranks()))
    late = export.table(path, "late")
    assert [column.name for column in late.columns] == ["late", "value"]
    assert list(late.rows()) == [("0", 0.75), ("1", 0.25)]
