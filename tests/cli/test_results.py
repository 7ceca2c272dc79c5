"""Files that commands write: never what they read."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dltune.cli import bench, diagnose, horovod_report, io_report, model, profile, run
from dltune.errors import UsageError


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (profile.command, ("--ops-of", "FILE", "--batch", "16", "-o", "FILE")),
        (profile.command, ("--from", "FILE", "-o", "./FILE")),
        (model.command, ("train", "other.json", "FILE", "-o", "FILE")),
        (bench.command, ("--plan", "FILE", "--pyperf", "FILE", "--", "true")),
        (run.command, ("--plan", "FILE", "--json", "FILE", "--", "true")),
        (diagnose.command, ("other.json", "FILE", "--plan", "FILE")),
        (horovod_report.command, ("--merge", "FILE", "other.json", "-o", "FILE")),
        (horovod_report.command, ("--timeline", "FILE", "-o", "FILE", "--", "true")),
        (io_report.command, ("--file", "FILE", "-o", "FILE")),
    ],
)
def test_what_is_read_is_not_written_over(
    command: click.Command,
    arguments: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [one.replace("FILE", "kept.json") for one in arguments]
    (tmp_path / "kept.json").write_text("{}")
    at = names.index("--") if "--" in names else len(names)
    found = CliRunner().invoke(command, [*names[:at], "--overwrite", *names[at:]])
    assert isinstance(found.exception, UsageError)
    assert "is both input and output" in str(found.exception)
    assert (tmp_path / "kept.json").read_text() == "{}"
