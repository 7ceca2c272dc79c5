"""Files that commands write: never what they read."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dltune.base.errors import UsageError
from dltune.cli import cli


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("profile", ("--ops-of", "FILE", "--batch", "16", "-o", "FILE")),
        ("profile", ("--from", "FILE", "-o", "./FILE")),
        ("model", ("train", "other.json", "FILE", "-o", "FILE")),
        ("bench", ("--plan", "FILE", "--pyperf", "FILE", "--", "true")),
        ("run", ("--plan", "FILE", "--json", "FILE", "--", "true")),
        ("diagnose", ("other.json", "FILE", "--plan", "FILE")),
        ("horovod-report", ("--merge", "FILE", "other.json", "-o", "FILE")),
        ("horovod-report", ("--timeline", "FILE", "-o", "FILE", "--", "true")),
        ("io-report", ("--file", "FILE", "-o", "FILE")),
    ],
)
def test_what_is_read_is_not_written_over(
    command: str,
    arguments: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [one.replace("FILE", "kept.json") for one in arguments]
    (tmp_path / "kept.json").write_text("{}")
    at = names.index("--") if "--" in names else len(names)
    found = CliRunner().invoke(cli, [command, *names[:at], "--overwrite", *names[at:]])
    assert isinstance(found.exception, UsageError)
    assert "is both input and output" in str(found.exception)
    assert (tmp_path / "kept.json").read_text() == "{}"
