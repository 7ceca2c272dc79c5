"""Every command on fixed documents prints and writes what it did before, to the letter.

`DLTUNE_REWRITE=1` writes the transcripts anew; `DLTUNE_OUTPUTS=FOLDER` keeps the outputs of which a
transcript has the hash only.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from owners import SYSTEMS, installed
from transcripts import HERE, blocks, command, leave_out, needed, rerun

from dltune.native import solver
from dltune.schemas import profile
from dltune.system import topology

TRANSCRIPTS = sorted(HERE.glob("*.txt"))


@pytest.fixture
def steady(monkeypatch):
    """Outputs as wide as on every machine, and on the machine of the documents. Time stands still:
    no command says that it took long, nor leaves out what it has no time for."""
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(solver, "GRACE", 500.0)
    machine = profile.load(HERE / "documents" / "tf.json.gz").machine
    monkeypatch.setattr(topology, "local", lambda: machine)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("DLTUNE_LOG", raising=False)


@pytest.mark.parametrize("file", TRANSCRIPTS, ids=lambda file: file.stem)
def test_a_transcript_is_as_before(file, tmp_path_factory, steady):
    # tables print the end of a path
    folder = tmp_path_factory.mktemp(f"{file.stem}-as-before", numbered=False) / "documents"
    shutil.copytree(HERE / "documents", folder)
    outputs = Path(os.environ["DLTUNE_OUTPUTS"]) if "DLTUNE_OUTPUTS" in os.environ else None
    now, before = [], []
    for block in blocks(file):
        if needed(block, folder) <= installed():
            now.append(rerun(command(block), folder, outputs))
            before.append(block)
        else:
            leave_out(block, folder)
    if not now:
        pytest.skip("the system of this transcript is not installed")
    if os.environ.get("DLTUNE_REWRITE") and installed() == set(SYSTEMS):
        file.write_text("\n".join(now))
    assert "\n".join(now) == "\n".join(block.rstrip("\n") + "\n" for block in before)
