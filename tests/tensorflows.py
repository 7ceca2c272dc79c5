"""The TensorFlows under which jobs are tested: this environment's, and an older one in another."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OTHER_PYTHON = Path(
    os.environ.get("DLTUNE_TEST_OTHER_PYTHON", ROOT / ".venv-tf216" / "bin" / "python")
)
MISSING = "no other environment: make .venv-tf216, or set DLTUNE_TEST_OTHER_PYTHON"
needs_other = pytest.mark.skipif(not OTHER_PYTHON.exists(), reason=MISSING)
# the Python of each, for a job's command
PYTHONS = [
    pytest.param(sys.executable, id="this"),
    pytest.param(str(OTHER_PYTHON), id="other", marks=needs_other),
]
# where the other has been tried with the same settings in another test
THIS_AND_PROOF = [
    PYTHONS[0],
    pytest.param(str(OTHER_PYTHON), id="other", marks=[needs_other, pytest.mark.proof]),
]
