"""The PyTorch under which jobs are tested, in an environment of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tensorflows import ROOT

TORCH_PYTHON = Path(
    os.environ.get("DLTUNE_TEST_TORCH_PYTHON", ROOT / ".venv-torch" / "bin" / "python")
)
needs_torch = pytest.mark.skipif(
    not TORCH_PYTHON.exists(),
    reason="no PyTorch: make .venv-torch, or set DLTUNE_TEST_TORCH_PYTHON",
)
