"""Inside the job's Python: the plugin for a TensorFlow, and which native library fits its build.

Only the standard library is used: this runs in the job's own Python as well as in dltune's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

PLUGIN = Path(__file__).resolve().parents[1] / "plugin"
DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "intel-tensorflow", "tf-nightly", "tf-nightly-cpu")
OLDEST = (2, 16)  # the first TensorFlow whose C++ interfaces the plugin is written against


def start(
    answer: dict[str, Any], interpreter: Any
) -> tuple[list[tuple[str, Callable[[ModuleType], None]]], dict[str, Any]]:
    """Return modules of the job and the functions to call after their import."""
    hooks = [("tensorflow.python.autograph.pyct.loader", interpreter.note_leftovers)]
    if answer.get("plugin", True):
        hooks.append(("tensorflow", lambda tensorflow: attach(tensorflow, interpreter)))
    return hooks, {}


def attach(tensorflow: ModuleType, interpreter: Any) -> None:
    """Attach the plugin to a TensorFlow that has been imported."""
    assert tensorflow.__file__ is not None
    folder = Path(tensorflow.__file__).parent
    build = {
        "framework": "tensorflow",
        "version": tensorflow.__version__,
        "git": getattr(tensorflow.version, "GIT_VERSION", ""),
    }
    interpreter.attach("plugin", PLUGIN, build, lambda: arguments(folder))


def tensorflow_version(folder: Path) -> str:
    """The version of the TensorFlow package in `folder`, from its wheel's metadata (no import).

    Raises RuntimeError when it was not installed from a wheel.
    """
    import importlib.metadata  # it takes longer to import than all else here

    for found in importlib.metadata.distributions(path=[str(folder.parent)]):
        if (found.name or "").lower().replace("_", "-") in DISTRIBUTIONS:
            return found.version
    raise RuntimeError(f"the TensorFlow in {folder} was not installed from a wheel")


def arguments(folder: Path) -> tuple[list[str], str]:
    """Return flags and salt of the library for the TensorFlow package in `folder`.

    Raises RuntimeError when that TensorFlow cannot carry the plugin.
    """
    version = tensorflow_version(folder)
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise RuntimeError(f"TensorFlow {version} is too old: dltune needs {wanted} or newer")
    framework = folder / "libtensorflow_framework.so.2"
    runtime = folder / "libtensorflow_cc.so.2"
    for library in (framework, runtime):
        if not library.exists():
            raise RuntimeError(
                f"this TensorFlow is not an official Linux wheel: {library} is missing"
            )
    # the flags of tf.sysconfig, and INTEL_MKL, with which the Linux wheels were built
    flags = [
        f"-isystem{folder / 'include'}",
        "-D_GLIBCXX_USE_CXX11_ABI=1",
        "-DEIGEN_MAX_ALIGN_BYTES=64",
        "-DINTEL_MKL",
        "-w",
        f"-L{folder}",
        "-l:libtensorflow_framework.so.2",
        "-l:libtensorflow_cc.so.2",
        "-lpthread",
    ]
    return flags, f"{version} {framework.stat().st_size}"
