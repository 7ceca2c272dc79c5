"""Which native library fits a TensorFlow build, and how it is built.

Only the standard library is used: this runs in the job's own Python as well as in dltune's.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

_PACKAGE = Path(__file__).resolve().parent.parent.parent


def sources(adapter: str) -> list[Path]:
    """Of the plugin in an adapter's folder, with the core that it stands on. What takes longest to
    compile, as it includes the framework, comes first."""
    return [
        *sorted((_PACKAGE / adapter / "plugin").glob("*.cc")),
        *sorted((_PACKAGE / "native" / "core").glob("*.cc")),
        *sorted((_PACKAGE / "native").glob("*.h")),
    ]


SOURCES = sources("tensorflow")
DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "intel-tensorflow", "tf-nightly", "tf-nightly-cpu")
OLDEST = (2, 16)  # the first TensorFlow whose C++ interfaces the plugin is written against


def build_module() -> ModuleType:
    """dltune/native/build.py, loaded by its path."""
    spec = importlib.util.spec_from_file_location("_dltune_build", _PACKAGE / "native" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensorflow_version(folder: Path) -> str:
    """The version of the TensorFlow package in `folder`, from its wheel's metadata (no import).

    Raises RuntimeError when it was not installed from a wheel.
    """
    for found in importlib.metadata.distributions(path=[str(folder.parent)]):
        if (found.name or "").lower().replace("_", "-") in DISTRIBUTIONS:
            return found.version
    raise RuntimeError(f"the TensorFlow in {folder} was not installed from a wheel")


def arguments(folder: Path) -> tuple[list[Path], list[str], str]:
    """Sources, flags and salt of the library for the TensorFlow package in `folder`.

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
    return SOURCES, flags, f"{version} {framework.stat().st_size}"


def library(folder: Path, on_build: Callable[[], object] | None = None) -> Path:
    """The built plugin for the TensorFlow package in `folder`; builds it when it must.

    Raises RuntimeError when that TensorFlow cannot carry it, and build.BuildError.
    """
    sources, flags, salt = arguments(folder)
    path: Path = build_module().library("plugin", sources, flags, salt, on_build)
    return path
