"""Inside the job's Python: the plugin for a PyTorch, which native library fits its build, and when
an optimizer steps.

Only the standard library is used; `dltune` itself may not exist in this environment.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

PLUGIN = Path(__file__).resolve().parents[1] / "plugin"
OLDEST = (2, 6)  # the first PyTorch whose C++ interfaces the plugin is written against


def start(
    answer: dict[str, Any], interpreter: Any
) -> tuple[list[tuple[str, Callable[[ModuleType], None]]], dict[str, Any]]:
    """Return modules of the job and the functions to call after their import."""
    # beside this file, and imports it
    import _dltune_torch_passes

    def attach(torch: ModuleType) -> None:
        _dltune_torch_passes.before_first_step(
            torch,
            lambda: interpreter.attach("pytorch", PLUGIN, facts(torch), lambda: arguments(torch)),
        )

    hooks = [("torch.distributed.elastic.multiprocessing.api", interpreter.note_leftovers)]
    if answer.get("plugin", True):
        hooks += [("torch", attach), ("torch._inductor.config", _name_kernels)]
    return hooks, {}


def _name_kernels(config: ModuleType) -> None:
    """Have code that is compiled from now on tell of each kernel that it runs."""
    with contextlib.suppress(Exception):  # of a PyTorch that has no such option
        config.cpp.enable_kernel_profile = True


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


def arguments(torch: ModuleType) -> tuple[list[str], str]:
    """Return flags and salt of the library for this PyTorch.

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
    return flags, f"{version} {runtime.stat().st_size}"
