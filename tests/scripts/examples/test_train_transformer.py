"""The bundled transformer learns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tensorflow

SCRIPT = Path(__file__).parents[3] / "scripts" / "examples" / "train_transformer.py"


def test_it_learns_what_follows(tmp_path: Path) -> None:
    file = tmp_path / "losses"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--steps", "40", "--batch", "8", "--losses", file],
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr
    losses = [float(line) for line in file.read_text().splitlines()]
    assert len(losses) == 40
    assert losses[0] == pytest.approx(6.9, abs=0.4), "of a thousand tokens, none is known: log 1000"
    assert losses[-1] < losses[0] - 0.3
    assert "step 39  loss" in done.stdout
