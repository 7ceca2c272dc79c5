"""Files that commands write: never what they read."""

from __future__ import annotations

from pathlib import Path

import overwriting
import pytest


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("profile", ("--ops-of", "FILE", "--batch", "16", "-o", "FILE")),
        ("profile", ("--from", "FILE", "-o", "./FILE")),
        ("model", ("train", "other.json", "FILE", "-o", "FILE")),
        ("bench", ("--plan", "FILE", "--pyperf", "FILE", "--", "true")),
        ("run", ("--plan", "FILE", "--json", "FILE", "--", "true")),
        ("diagnose", ("other.json", "FILE", "--plan", "FILE")),
    ],
)
def test_what_is_read_is_not_written_over(
    command: str,
    arguments: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overwriting.require_refusal(command, arguments, tmp_path, monkeypatch)
