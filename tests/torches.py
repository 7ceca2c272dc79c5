"""The PyTorch under which jobs are tested, in an environment of its own."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
from pathlib import Path

import pytest
from tensorflows import ROOT

TORCH_PYTHON = Path(
    os.environ.get("DLTUNE_TEST_TORCH_PYTHON", ROOT / ".venv-torch" / "bin" / "python")
)
SCRIPTS = Path(__file__).parent / "jobs" / "torch_scripts.py"
needs_torch = pytest.mark.skipif(
    not TORCH_PYTHON.exists(),
    reason="no PyTorch: make .venv-torch, or set DLTUNE_TEST_TORCH_PYTHON",
)


def release() -> tuple[int, int]:
    """Such as (2, 6)."""
    asks = "import importlib.metadata; print(importlib.metadata.version('torch'))"
    version = subprocess.check_output([TORCH_PYTHON, "-c", asks], text=True)
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def computes(folder: Path, script: Path, *arguments: object) -> None:
    """Run a script without dltune, in a process that has run others: what it writes counts."""
    process = _process()
    assert process.stdin
    assert process.stdout
    command = [str(folder), str(script), *map(str, arguments)]
    print(json.dumps(command), file=process.stdin, flush=True)
    assert "ended\n" in iter(process.stdout.readline, ""), process.wait()


@functools.cache
def _process() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [TORCH_PYTHON, SCRIPTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)
    return process
