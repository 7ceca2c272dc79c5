"""The Python in which JAX's jobs are tested: this one's, or another that is named."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pytest

PYTHON = os.environ.get("DLTUNE_TEST_JAX_PYTHON", sys.executable)
MISSING = "no JAX here: pip install dltune[jax], or set DLTUNE_TEST_JAX_PYTHON"


@functools.cache
def _there() -> bool:
    code = "from importlib.util import find_spec as f; exit(not (f('jax') and f('keras')))"
    return subprocess.run([PYTHON, "-c", code], check=False).returncode == 0


needs_jax = pytest.mark.skipif(not _there(), reason=MISSING)
