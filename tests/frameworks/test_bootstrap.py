"""What is injected into the interpreters of a job: without TensorFlow, in Pythons of their own."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import answering_socket
import msgspec
import pytest

from dltune import extensions
from dltune.frameworks.bootstrap import _dltune_plugin
from dltune.job.launch import BOOTSTRAP
from dltune.native import build

PACKAGE = BOOTSTRAP.parent.parent
INJECT = PACKAGE / "frameworks" / "tensorflow" / "inject"


@pytest.fixture
def listening(tmp_path) -> Iterator[tuple[str, list[dict]]]:
    """A socket on which every message is heard and answered with {}."""
    with answering_socket.listening(tmp_path, [{}]) as path_and_messages:
        yield path_and_messages


def python(code: str, *paths: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [BOOTSTRAP, *paths])), **env},
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
    for file in (*BOOTSTRAP.glob("*.py"), *INJECT.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                top = name.partition(".")[0]
                ours = (*BOOTSTRAP.glob("_dltune_*.py"), *INJECT.glob("_dltune_*.py"))
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
    done = python(f"import sys; print(sys.path.count({str(BOOTSTRAP)!r}))", DLTUNE_SOCKET=path)
    assert done.stdout == "1\n"  # from PYTHONPATH


def loaded(code: str, path: str, *paths: Path) -> list[str]:
    """Names of dltune's modules in an interpreter that has run `code`."""
    names = "sorted(name for name in sys.modules if name.startswith('_dltune'))"
    done = python(f"{code}\nimport sys; print(*{names})", *paths, DLTUNE_SOCKET=path)
    assert done.stderr == ""
    return done.stdout.split()


def test_hooks_are_loaded_with_their_package_alone(listening, tmp_path):
    path, _ = listening
    assert loaded("", path) == ["_dltune_attach"]
    (tmp_path / "torch.py").write_text("__version__ = '2.99.0'\n")
    assert loaded("import torch", path, tmp_path) == [
        *("_dltune_attach", "_dltune_torch", "_dltune_torch_passes")
    ]


def test_every_registered_hook_is_there():
    for hook in extensions.hooks():
        assert hook.packages
        tree = ast.parse((Path(hook.folders[0]) / f"{hook.module}.py").read_text())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert functions >= set(hook.settings or ["start"]), hook


def hook(folder: Path, body: str) -> None:
    """A hook of another package, for the package `fake` of the job."""
    (folder / "_dltune_own.py").write_text(body)
    own = extensions.Hook("_dltune_own", (str(folder),), ("fake",))
    (folder / "hooks").write_bytes(msgspec.json.encode([own._asdict()]))
    (folder / "fake.py").write_text("print('fake')\n")


def test_a_hook_of_another_package(listening, tmp_path):
    path, heard = listening
    hook(
        tmp_path,
        "def start(answer, interpreter):\n"
        "    return [('fake', lambda fake: interpreter.tell({'type': fake.__name__}))], {}\n",
    )
    done = python("import fake", tmp_path, DLTUNE_SOCKET=path)
    assert (done.stdout, done.stderr) == ("fake\n", "")
    assert [message["type"] for message in heard] == ["python", "fake"]


@pytest.mark.parametrize("body", ["raise OSError('unreadable')", "start = None", "def"])
def test_a_hook_that_fails_is_told_and_fails_nothing(listening, tmp_path, body):
    path, _ = listening
    hook(tmp_path, body)
    done = python("import fake", tmp_path, DLTUNE_SOCKET=path)
    assert (done.stdout, done.returncode) == ("fake\n", 0)
    assert "dltune: could not attach to this Python: " in done.stderr


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
    file = INJECT / "_dltune_tensorflow.py"
    spec = importlib.util.spec_from_file_location("_dltune_tensorflow", file)
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
        plugin.arguments(wheel(tmp_path, "2.15.1"))


def test_a_tensorflow_without_its_libraries(plugin, tmp_path):
    with pytest.raises(RuntimeError, match="not an official Linux wheel"):
        plugin.arguments(wheel(tmp_path, "2.21.0"))


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow_cpu", "tf_nightly", "intel_tensorflow"])
def test_the_library_is_another_for_another_tensorflow(plugin, tmp_path, name):
    paths = set()
    for version in ("2.16.2", "2.21.0"):
        folder = wheel(tmp_path / version, version, name)
        for library in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
            (folder / library).touch()
        sources, (flags, salt) = _dltune_plugin.sources(plugin.PLUGIN), plugin.arguments(folder)
        paths.add(build.library_path("plugin", sources, flags, salt))
    assert len(paths) == 2


def test_systems_add_their_parts_to_the_plugin(tmp_path, monkeypatch):
    monkeypatch.setattr(_dltune_plugin, "_PACKAGE", tmp_path)
    system = tmp_path / "systems" / "waiting"
    for name in (
        "plugin/words.cc",
        "plugin/tensorflow/kernel.cc",
        "plugin/jax/call.cc",
        "model.cc",
    ):
        (system / name).parent.mkdir(parents=True, exist_ok=True)
        (system / name).touch()
    alone = {"tensorflow": ["plugin/tensorflow/kernel.cc", "plugin/words.cc"]}
    alone["pytorch"] = ["plugin/words.cc"]
    for framework, names in alone.items():
        found = _dltune_plugin.sources(PACKAGE / "frameworks" / framework / "plugin")
        added = [source for source in found if source.is_relative_to(tmp_path)]
        assert added == [system / name for name in names]
        assert PACKAGE / "native" / "core" / "orders.cc" in found
