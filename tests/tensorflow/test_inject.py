"""What is injected into the interpreters of a job: without TensorFlow, in Pythons of their own."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import dltune

INJECT = Path(dltune.__file__).parent / "tensorflow" / "inject"


@pytest.fixture
def listening(tmp_path) -> Iterator[tuple[str, list[dict]]]:
    """A socket on which every message is heard and answered with {}."""
    path, heard = str(tmp_path / "socket"), []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                line = connection.makefile("rb").readline()
                if not line:
                    return
                heard.append(json.loads(line))
                connection.sendall(b"{}\n")

    thread = threading.Thread(target=serve)
    thread.start()
    yield path, heard
    with socket.socket(socket.AF_UNIX) as last:
        last.connect(path)
    thread.join()
    listener.close()


def python(code: str, *paths: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [INJECT, *paths])), **env},
    )


def stub(folder: Path, body: str) -> Path:
    """A package `tensorflow` that is none, outside any wheel."""
    (folder / "tensorflow").mkdir(parents=True)
    (folder / "tensorflow" / "__init__.py").write_text(body)
    return folder


FAKE = "__version__ = '2.99.0'\nclass version: GIT_VERSION = 'v2.99.0'\n"


def test_a_python_reports_in(listening):
    path, heard = listening
    done = python("print('ran')", DLTUNE_SOCKET=path)
    assert done.stdout == "ran\n"
    assert done.stderr == ""
    assert [message["type"] for message in heard] == ["python"]
    assert heard[0]["argv"][-1] == "print('ran')"


def test_nothing_but_the_standard_library_is_imported(listening, tmp_path):
    for file in INJECT.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                top = name.partition(".")[0]
                ours = INJECT.parent.parent.glob("*/inject/_dltune_*.py")
                allowed = {file.stem for file in ours} | {"tensorflow"}
                assert top in sys.stdlib_module_names | allowed, (file, name)


@pytest.mark.parametrize("env", [{}, {"DLTUNE_DISABLE": "1"}])
def test_without_dltune_or_disabled_nothing_happens(listening, env):
    path, heard = listening
    code = "import sys; print('_dltune_attach' in sys.modules)"
    given = {"DLTUNE_SOCKET": path, **env} if env else {"DLTUNE_SOCKET": ""}
    done = python(code, **given)
    assert (done.stdout, done.stderr, heard) == ("False\n", "", [])


def test_a_dltune_that_is_gone_does_not_fail_the_job(tmp_path):
    done = python("print('ran')", DLTUNE_SOCKET=str(tmp_path / "none"))
    assert (done.stdout, done.stderr, done.returncode) == ("ran\n", "", 0)


def test_a_sitecustomize_that_it_hides_runs_too(listening, tmp_path):
    path, heard = listening
    (tmp_path / "sitecustomize.py").write_text("print('theirs')")
    done = python("print('ran')", tmp_path, DLTUNE_SOCKET=path)
    assert done.stdout == "theirs\nran\n"
    assert heard


def test_the_modules_of_dltune_are_not_left_on_the_path(listening):
    path, _ = listening
    done = python(f"import sys; print(sys.path.count({str(INJECT)!r}))", DLTUNE_SOCKET=path)
    assert done.stdout == "1\n"  # from PYTHONPATH


def test_a_tensorflow_from_no_wheel_is_told_and_the_job_runs_on(listening, tmp_path):
    path, heard = listening
    code = "import tensorflow, tensorflow as again; print(tensorflow.__version__)"
    done = python(code, stub(tmp_path / "fake", FAKE), DLTUNE_SOCKET=path)
    assert done.stdout == "2.99.0\n"
    assert [message["type"] for message in heard] == ["python", "failed"]
    assert "not installed from a wheel" in heard[1]["reason"]
    assert heard[1]["version"] == "2.99.0"


def test_a_tensorflow_that_fails_to_import_fails_as_ever(listening, tmp_path):
    path, heard = listening
    done = python(
        "import tensorflow",
        stub(tmp_path / "fake", "raise ImportError('broken')"),
        DLTUNE_SOCKET=path,
    )
    assert done.returncode == 1
    assert "ImportError: broken" in done.stderr
    assert [message["type"] for message in heard] == ["python"]


def test_without_a_tensorflow_the_import_fails_as_ever(listening):
    path, _ = listening
    code = "import sys; sys.path = [p for p in sys.path if 'site-' not in p]; import tensorflow"
    done = python(code, DLTUNE_SOCKET=path)
    assert "ModuleNotFoundError: No module named 'tensorflow'" in done.stderr


@pytest.fixture(scope="module")
def plugin() -> ModuleType:
    spec = importlib.util.spec_from_file_location("_dltune_plugin", INJECT / "_dltune_plugin.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel(folder: Path, version: str, name: str = "tensorflow_cpu") -> Path:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "tensorflow").mkdir()
    return folder / "tensorflow"


def test_a_tensorflow_that_is_too_old(plugin, tmp_path):
    with pytest.raises(RuntimeError, match=r"2\.15\.1 is too old: dltune needs 2\.16 or newer"):
        plugin.library(wheel(tmp_path, "2.15.1"))


def test_a_tensorflow_without_its_libraries(plugin, tmp_path):
    with pytest.raises(RuntimeError, match="not an official Linux wheel"):
        plugin.library(wheel(tmp_path, "2.21.0"))


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow_cpu", "tf_nightly", "intel_tensorflow"])
def test_the_library_is_another_for_another_tensorflow(plugin, tmp_path, name):
    paths = set()
    for version in ("2.16.2", "2.21.0"):
        folder = wheel(tmp_path / version, version, name)
        for library in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
            (folder / library).touch()
        sources, flags, salt = plugin.arguments(folder)
        paths.add(plugin.build_module().library_path("plugin", sources, flags, salt))
    assert len(paths) == 2
