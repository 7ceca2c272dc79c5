"""Commands that would write over what they read."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dltune.base.errors import UsageError
from dltune.cli import cli


def require_refusal(
    command: str, arguments: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Require that a command refuses to write over FILE, which it reads."""
    monkeypatch.chdir(folder)
    names = [one.replace("FILE", "kept.json") for one in arguments]
    (folder / "kept.json").write_text("{}")
    at = names.index("--") if "--" in names else len(names)
    found = CliRunner().invoke(cli, [command, *names[:at], "--overwrite", *names[at:]])
    assert isinstance(found.exception, UsageError)
    assert "is both input and output" in str(found.exception)
    assert (folder / "kept.json").read_text() == "{}"
