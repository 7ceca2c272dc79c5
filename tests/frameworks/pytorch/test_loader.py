"""DataLoaders of unmodified PyTorch jobs: whose batches come from workers, and what they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hooked import JOBS, told
from torches import TORCH_PYTHON, needs_torch

from dltune.job import protocol

pytestmark = [pytest.mark.tensorflow, needs_torch]


def ran(**settings: str) -> tuple[dict[str, Any], dict[str, protocol.Setting]]:
    heard = told(JOBS / "torch_loaders.py", settings, python=TORCH_PYTHON)
    return json.loads(Path("found.json").read_text()), heard


def test_workers_prepare_the_same_batches(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain, heard = ran()
    assert heard == {}
    found, heard = ran(input_prefetch="8", input_workers="2")
    workers, ahead = heard["input_workers"], heard["input_prefetch"]
    given = {"plain", "shuffled", "one by one", "asked at once"}
    for name in sorted(name for name, one in plain.items() if isinstance(one, dict)):
        before, now = plain.pop(name), found.pop(name)
        assert now.pop("elsewhere") == ([True] if name in given else before.pop("elsewhere")), name
        before.pop("elsewhere", None)
        # losses with dropout, and what the script sees of its loaders
        assert now == before, name
    # the dataset was changed after its iterator was made, and before the first batch
    assert (plain.pop("grown elsewhere"), found.pop("grown elsewhere")) == (False, True)
    assert found == plain
    assert found["read meanwhile"] == (JOBS / "torch_loaders.py").read_text()
    assert workers.did == "set 2 workers in each of 7 DataLoaders"
    assert workers.left == [
        "a DataLoader of Noisy, a DataLoader of OwnNoise, a DataLoader of Rows: it draws random "
        "numbers, and a worker would draw different numbers",
        "a DataLoader of SharedNoise, a DataLoader of Counting: its batches differ each time "
        "they are read, so workers would change them",
        "a DataLoader of Reading: it has an open FileIO, which processes cannot share",
        "a DataLoader of ReadingShared: it reads from a file that the job opened before, and "
        "processes cannot share its position",
        "a DataLoader of Parent: a test worker failed at the first batch: RuntimeError: not here",
        "a DataLoader of Stream: each worker would read the whole IterableDataset",
        "a DataLoader of TensorDataset: it has no batches",
        "a DataLoader of Rows: the script sets num_workers=1",
    ]
    # those that were given workers, and the one that the script gave one
    assert ahead.count == 8
    assert "a DataLoader of Rows: the script sets prefetch_factor=3" in ahead.left
