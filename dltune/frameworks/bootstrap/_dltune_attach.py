"""Inside the job's Python: report in, wait for what is imported, and act after it.

Only the standard library is used; `dltune` itself may not exist in this environment.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import importlib.abc
import importlib.util
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

# beside this file, which sitecustomize puts on sys.path
import _dltune_horovod
import _dltune_plugin

# what tells ranks and a cluster's tasks apart; dltune knows what each means
_VARIABLES = (
    *("OMPI_", "HOROVOD_", "MPI_", "PMI_", "PMIX_", "SLURM_", "LOCAL_", "TF_CONFIG"),
    *("DLTUNE_RANK", "DLTUNE_LOCAL_RANK"),
)
_PR_SET_PTRACER = 0x59616D61
# torchrun's, whose names others begin with, too
_TORCHRUN = ("RANK", "WORLD_SIZE")
# modules that leave temporary files where their process is ended
_LEAVING = (
    "tensorflow.python.autograph.pyct.loader",
    "torch.distributed.elastic.multiprocessing.api",
)
_HERE = str(Path(__file__).resolve().parent)
_PYTORCH = str(Path(__file__).resolve().parent.parent.parent / "pytorch" / "inject")
# what to do with a module once it has run
_Hook = Callable[[ModuleType], None]
# what to do with why it could not run
_Failed = Callable[[BaseException], None]
_plugin: ctypes.CDLL | None = None  # kept, so that the library stays loaded


def _readable(text: str) -> str:
    """Without what is no UTF-8, as in names of files of old, which JSON cannot hold."""
    return os.fsencode(text).decode("utf-8", "replace")


def start(path: str) -> None:
    """Report this process, take its share of the cores, and watch for what it imports."""
    bound = os.sched_getaffinity(0)
    answer = _tell(
        path,
        {
            "type": "python",
            "pid": os.getpid(),
            "argv": list(map(_readable, sys.orig_argv)),
            "python": sys.version.split()[0],
            "environment": {
                name: _readable(value)
                for name, value in os.environ.items()
                if name.startswith(_VARIABLES) or name in _TORCHRUN
            },
        },
    )
    if cpus := answer.get("cpus"):
        os.sched_setaffinity(0, cpus)
    if watcher := answer.get("watcher"):
        # where Yama keeps processes of the same user apart (ptrace_scope 1), py-spy may look all
        # the same; elsewhere the kernel says no, and nothing is kept apart
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(watcher), 0, 0, 0)
    rank = _dltune_horovod.Rank(
        answer.get("horovod", {}), sorted(bound), lambda message: _tell(path, message)
    )
    hooks: list[tuple[str, _Hook]] = [
        ("horovod.common.basics", rank.wrap_init),
        ("horovod.tensorflow", rank.wrap_reduction),
        ("horovod.runner.launch", _dltune_horovod.end_quietly),
    ]
    hooks += [(module, lambda it: _note_leftovers(it, Path(path).parent)) for module in _LEAVING]
    if answer.get("plugin", True):
        hooks.append(("tensorflow", lambda tensorflow: attach_to_tensorflow(path, tensorflow)))
        hooks.append(("torch", lambda torch: _attach_to_pytorch(path, torch)))
        hooks.append(("torch._inductor.config", _name_kernels))
    if (watched := answer.get("environment")) is not None:
        hooks += [
            (framework, lambda _: _tell_environment(path, watched))
            for framework in ("tensorflow", "torch")
        ]
    if settings := answer.get("settings"):
        with _importing(_HERE, _PYTORCH):  # with what its hooks import: not in every interpreter
            import _dltune_settings

        hooks += _dltune_settings.hooks(settings, lambda message: _tell(path, message))
    failed: dict[str, _Failed] = dict.fromkeys(("horovod", "horovod.tensorflow"), rank.fail)
    for adapter in answer.get("adapters", ()):
        theirs, unable = _adapted(adapter, lambda message: _tell(path, message))
        hooks += theirs
        failed |= unable
    sys.meta_path.insert(0, _Watch(hooks, failed))


def _adapted(
    adapter: dict[str, Any], tell: Callable[[dict[str, Any]], Any]
) -> tuple[list[tuple[str, _Hook]], dict[str, _Failed]]:
    """What another adapter's `module` in `folders` is to do under its `orders`: after what is
    imported, and where that cannot be."""
    with _importing(*adapter["folders"]):
        found: tuple[list[tuple[str, _Hook]], dict[str, _Failed]] = importlib.import_module(
            adapter["module"]
        ).start(adapter["orders"], tell)
    return found


@contextlib.contextmanager
def _importing(*folders: str) -> Iterator[None]:
    sys.path += folders
    try:
        yield
    finally:
        for folder in folders:
            sys.path.remove(folder)


def attach_to_tensorflow(path: str, tensorflow: ModuleType) -> None:
    """Now that it has been imported."""
    assert tensorflow.__file__ is not None
    folder = Path(tensorflow.__file__).parent
    facts = {
        "framework": "tensorflow",
        "version": tensorflow.__version__,
        "git": getattr(tensorflow.version, "GIT_VERSION", ""),
    }
    attach(path, facts, lambda on_build: _dltune_plugin.library(folder, on_build))


def _attach_to_pytorch(path: str, torch: ModuleType) -> None:
    """Before its first step."""
    with _importing(_HERE, _PYTORCH):
        import _dltune_torch
        import _dltune_torch_passes
    _dltune_torch_passes.before_first_step(
        torch,
        lambda: attach(
            path,
            _dltune_torch.facts(torch),
            lambda on_build: _dltune_torch.library(torch, on_build),
        ),
    )


def _note_leftovers(module: ModuleType, folder: Path) -> None:
    with _importing(_HERE):
        import _dltune_leftovers
    _dltune_leftovers.note(module, folder)


def _name_kernels(config: ModuleType) -> None:
    """What is compiled from now on tells of each kernel that it runs."""
    with contextlib.suppress(Exception):  # of a PyTorch that has no such option
        config.cpp.enable_kernel_profile = True


def attach(
    path: str, build: dict[str, str], library: Callable[[Callable[[], object]], Path]
) -> ctypes.CDLL | None:
    """Build (once) and load the plugin for a framework that has been imported. `build`: which;
    `library` makes the plugin, and calls what it is given when it must build it first. None where
    that failed."""
    global _plugin
    facts = {"pid": os.getpid(), "python": sys.version.split()[0], **build}
    try:
        made = library(lambda: _tell(path, {"type": "building", **facts}))
        plugin = ctypes.CDLL(str(made))
        plugin.dltune_open.restype = ctypes.c_char_p
        hello = json.dumps({"type": "plugin", **facts})
        if complaint := plugin.dltune_open(path.encode(), hello.encode()):
            raise RuntimeError(complaint.decode())
    except Exception as error:
        _tell(path, {"type": "failed", **facts, "reason": str(error)})
        return None
    _plugin = plugin
    owner = os.getpid()  # a forked child must not close what it shares with its parent
    atexit.register(lambda: plugin.dltune_close() if os.getpid() == owner else None)
    return plugin


def _tell_environment(path: str, names: Sequence[str]) -> None:
    """What the variables are once the script has come as far as importing its framework."""
    found = {name: os.environ[name] for name in names if name in os.environ}
    _tell(path, {"type": "environment", "pid": os.getpid(), "variables": found})


def _tell(path: str, message: dict[str, Any]) -> dict[str, Any]:
    """Send one message to dltune and return its answer ({} when dltune is gone)."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(path)
            connection.sendall(json.dumps(message).encode() + b"\n")
            answer = connection.makefile("rb").readline()
        reply: dict[str, Any] = json.loads(answer or b"{}")
    except (OSError, ValueError):
        return {}
    return reply


class _Watch(importlib.abc.MetaPathFinder):
    """Lets modules be imported as ever, calls the `hooks` of each once it has run, in their order,
    and what of `failed` is for it when it could not."""

    def __init__(self, hooks: Sequence[tuple[str, _Hook]], failed: dict[str, _Failed]) -> None:
        self._hooks = hooks
        self._failed = failed
        self._awaited = {*failed, *(module for module, _ in hooks)}

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name not in self._awaited:
            return None
        hooks = [hook for module, hook in self._hooks if module == name]
        failed: _Failed = self._failed.get(name, lambda _: None)
        for finder in list(sys.meta_path):
            if finder is not self and (spec := finder.find_spec(name, path, target)):
                if spec.loader is not None:  # who has asked may not import it yet
                    spec.loader = _Loader(spec.loader, hooks, failed, lambda: self._met(name))
                return spec
        self._met(name)
        failed(ModuleNotFoundError(f"No module named {name!r}"))
        return None

    def _met(self, name: str) -> None:
        self._awaited.discard(name)
        if not self._awaited and self in sys.meta_path:
            sys.meta_path.remove(self)


class _Loader(importlib.abc.Loader):
    def __init__(
        self,
        inner: importlib.abc.Loader,
        hooks: Sequence[_Hook],
        failed: _Failed,
        begins: Callable[[], None],
    ) -> None:
        self._inner = inner
        self._hooks = hooks
        self._failed = failed
        self._begins = begins

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._begins()
        try:
            self._inner.exec_module(module)
        except BaseException as error:
            self._failed(error)
            raise
        for hook in self._hooks:
            hook(module)

    def __getattr__(self, name: str) -> Any:  # loaders have optional parts, such as get_source
        return getattr(self._inner, name)
