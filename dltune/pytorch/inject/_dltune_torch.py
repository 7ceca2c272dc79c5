"""Inside the job's Python: which native library fits a PyTorch build, and when an optimizer steps.

Only the standard library is used; `dltune` itself may not exist in this environment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

# beside the bootstrap, which is being imported
import _dltune_plugin

OLDEST = (2, 6)  # the first PyTorch whose C++ interfaces the plugin is written against


def at_each_step(torch: ModuleType, **acts: Callable[[Any, tuple[Any, ...]], None]) -> None:
    """Has `before` and `after` called around each step of an optimizer, with it and with what the
    step is given besides, such as a closure. Not of one that the script compiles: it has no room
    for more."""
    # as an attribute `torch.optim` takes it away; a PyTorch from before 2.0 has no such hooks
    optimizer = sys.modules.get(f"{torch.__name__}.optim.optimizer")
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)
    for when, name in (("before", "pre"), ("after", "post")):
        register = getattr(optimizer, f"register_optimizer_step_{name}_hook", None)
        if when in acts and register:
            register(_stepping(acts[when], compiling))


def _stepping(
    act: Callable[[Any, tuple[Any, ...]], None], compiling: Callable[[], bool]
) -> Callable[..., None]:
    def hook(stepping: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        if not compiling():
            act(stepping, (*arguments[1:], *options.values()))

    return hook


def release(torch: ModuleType) -> tuple[int, ...]:
    """Such as (2, 6)."""
    return tuple(map(int, torch.__version__.split(".")[:2]))


def facts(torch: ModuleType) -> dict[str, str]:
    """As `messages.Plugin` has them."""
    return {
        "framework": "pytorch",
        "version": torch.__version__,
        "git": getattr(torch.version, "git_version", "") or "",
    }


def arguments(torch: ModuleType) -> tuple[list[Path], list[str], str]:
    """Sources, flags and salt of the library for this PyTorch.

    Raises RuntimeError when it cannot carry the plugin.
    """
    version = torch.__version__
    if release(torch) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise RuntimeError(f"PyTorch {version} is too old: dltune needs {wanted} or newer")
    assert torch.__file__ is not None
    folder = Path(torch.__file__).parent
    runtime = folder / "lib" / "libtorch_cpu.so"
    if not runtime.exists():
        raise RuntimeError(f"this PyTorch is not an official Linux wheel: {runtime} is missing")
    flags = [
        f"-isystem{folder / 'include'}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        "-std=c++20",
        "-w",
        f"-L{folder / 'lib'}",
        "-ltorch_cpu",
        "-lc10",
        "-lpthread",
    ]
    return _dltune_plugin.sources("pytorch"), flags, f"{version} {runtime.stat().st_size}"


def library(torch: ModuleType, on_build: Callable[[], object]) -> Path:
    """The built plugin for this PyTorch; builds it when it must.

    Raises RuntimeError when it cannot carry it, and build.BuildError.
    """
    sources, flags, salt = arguments(torch)
    path: Path = _dltune_plugin.build_module().library("pytorch", sources, flags, salt, on_build)
    return path
