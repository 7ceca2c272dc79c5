from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from dltune.frameworks.tensorflow.runtime import lacking, lacking_in
from dltune.system import kernel_files


@pytest.fixture(scope="module")
def library() -> Path:
    """Of the TensorFlow here, which is not imported for it."""
    found = importlib.util.find_spec("tensorflow")
    return Path(str(found and found.origin)).with_name("libtensorflow_framework.so.2")


def test_a_build_tells_what_it_lacks_of_this_cpu(library):
    found = lacking(library)
    assert found is not None
    flags = kernel_files.cpu_flags()
    named = {"AVX2": "avx2", "FMA": "fma", "AVX512F": "avx512f", "AVX": "avx"}
    assert all(named[name] in flags for name in found if name in named)
    # the wheel has AVX and nothing wider
    assert "AVX" not in found
    assert ("AVX2" in found) == ("avx2" in flags)


def test_what_is_no_tensorflow_is_not_known(tmp_path):
    assert lacking(tmp_path / "libtensorflow_framework.so.2") is None


def test_a_process_without_tensorflow_and_one_that_is_gone():
    with subprocess.Popen(["sleep", "60"]) as without:
        try:
            assert lacking_in(without.pid) is None
        finally:
            without.kill()
    assert lacking_in(without.pid) is None
