"""Horovod's build: what it takes, what it tells, and where what it made may lie."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import two_ranks

from dltune.native.build import BuildError

sys.path.append(str(Path(__file__).parents[4] / "scripts" / "release"))
import build_horovod

LISTS = """list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/mpi_ops.cc")
list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")
"""


def test_the_file_that_cannot_be_built_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "CMakeLists.txt"
    file.write_text(LISTS)
    build_horovod.leave_out(file)
    assert file.read_text() == LISTS.replace("list(APPEND", "#list(APPEND").replace("#", "", 1)


def test_sources_of_another_form_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "CMakeLists.txt"
    file.write_text(LISTS.splitlines()[0])
    with pytest.raises(BuildError, match=r"does not name .*xla_mpi_ops"):
        build_horovod.leave_out(file)


def test_the_compilers_error_is_told_not_what_pip_says_after_it() -> None:
    after = [f"pip says {n}" for n in range(50)]
    output = "\n".join(["compiling", "a.cc:1:2: error: no such thing", "  here ^", *after])
    told = build_horovod.told_last(output).splitlines()
    assert told[:2] == ["a.cc:1:2: error: no such thing", "  here ^"]


def test_without_an_error_of_the_compiler_the_last_lines_are_told() -> None:
    assert build_horovod.told_last("one\ntwo\n") == "one\ntwo"


def test_a_command_that_fails_tells_its_words_and_leaves_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLTUNE_CACHE", str(tmp_path))
    code = "print('x.cc:3: error: bad'); raise SystemExit(4)"
    with pytest.raises(BuildError, match=r"(?s)ended with 4.*error: bad.*the whole log"):
        build_horovod.run([sys.executable, "-c", code])
    assert "error: bad" in (tmp_path / "horovod-0.28.1.log").read_text()


def test_a_wheel_installed_elsewhere_finds_the_mpi_that_lies_beside_it(tmp_path: Path) -> None:
    if reason := two_ranks.missing("mpi"):
        pytest.skip(reason)
    here = Path(sysconfig.get_path("platlib"))
    [library] = (here / "horovod/tensorflow").glob("mpi_lib*.so")
    folder = tmp_path / library.parent.relative_to(sys.prefix)
    folder.mkdir(parents=True)
    shutil.copy(library, folder)
    shutil.copy(Path(sys.prefix, "lib/libmpi.so.40"), tmp_path / "lib")
    needed = subprocess.run(["ldd", folder / library.name], capture_output=True, text=True)
    assert f"libmpi.so.40 => {folder}/../../../../libmpi.so.40" in needed.stdout
