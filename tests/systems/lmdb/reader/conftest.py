"""Lets these tests import the module beside them, and fixes what launchers would tell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dltune.job import rank_layout
from dltune.systems.lmdb.reader.node import JOB_VARIABLES

sys.path.append(str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        name
        for pair in (*rank_layout.WORLD_VARIABLES, *rank_layout.LOCAL_VARIABLES)
        for name in pair
    }
    for name in {*names, *JOB_VARIABLES, "SLURM_LOCALID", "DLTUNE_IO"}:
        monkeypatch.delenv(name, raising=False)
