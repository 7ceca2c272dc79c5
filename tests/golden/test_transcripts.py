"""Every command on fixed documents prints and writes what it did before, to the letter.

`DLTUNE_REWRITE=1` writes the transcripts anew; `DLTUNE_OUTPUTS=FOLDER` keeps the outputs of which a
transcript has the hash only.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from dltune.schemas import profile
from dltune.system import topology
from transcripts import HERE, commands, rerun

TRANSCRIPTS = sorted(HERE.glob("*.txt"))


@pytest.fixture
def steady(monkeypatch):
    """Outputs as wide as on every machine, and on the machine of the documents."""
    machine = profile.load(HERE / "documents" / "tf.json.gz").machine
    monkeypatch.setattr(topology, "local", lambda: machine)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("DLTUNE_LOG", raising=False)


@pytest.mark.parametrize("file", TRANSCRIPTS, ids=lambda file: file.stem)
def test_a_transcript_is_as_before(file, tmp_path, steady):
    folder = tmp_path / "documents"
    shutil.copytree(HERE / "documents", folder)
    outputs = Path(os.environ["DLTUNE_OUTPUTS"]) if "DLTUNE_OUTPUTS" in os.environ else None
    now = "\n".join(rerun(command, folder, outputs) for command in commands(file))
    if os.environ.get("DLTUNE_REWRITE"):
        file.write_text(now)
    assert now == file.read_text()
