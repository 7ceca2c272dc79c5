"""Inside the job's Python: report in, watch for imports, and run hooks on what is imported.

Only the standard library is used; `dltune` itself may not exist in this environment. The hooks of
frameworks and systems are modules in folders of their own, which the launcher names in the file
`hooks` beside its socket (`dltune.extensions.Hook`). Such a module is imported with its package.

Every interpreter of a job imports this file, so it imports little: ctypes, pathlib and
importlib.abc would take longer than everything else here.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ctypes
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from pathlib import Path

# variables that distinguish ranks and a cluster's tasks; dltune knows the meaning of each
_VARIABLES = (
    *("OMPI_", "HOROVOD_", "MPI_", "PMI_", "PMIX_", "SLURM_", "LOCAL_", "TF_CONFIG"),
    *("DLTUNE_RANK", "DLTUNE_LOCAL_RANK"),
)
_PR_SET_PTRACER = 0x59616D61
# torchrun's variables; names of other variables begin with these, too
_TORCHRUN = ("RANK", "WORLD_SIZE")
_HERE = os.path.dirname(os.path.abspath(__file__))
# modules of the job, and the function to call after the import of each
_Hooks = list[tuple[str, Callable[[ModuleType], None]]]
# modules of the job, and the function to call with the error if one cannot be imported
_Failed = dict[str, Callable[[BaseException], None]]
_plugin: ctypes.CDLL | None = None  # kept, so that the library stays loaded


class Interpreter:
    """This interpreter of the job. `bound`: the CPUs that it had before dltune's answer."""

    def __init__(self, path: str) -> None:
        """`path`: dltune's socket."""
        self._path = path
        self.folder = os.path.dirname(path)  # of the job; dltune removes it at the end
        self.bound = sorted(os.sched_getaffinity(0))

    def tell(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send one message to dltune and return its answer ({} when dltune is gone)."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(30)
                connection.connect(self._path)
                connection.sendall(json.dumps(message).encode() + b"\n")
                answer = connection.makefile("rb").readline()
            reply: dict[str, Any] = json.loads(answer or b"{}")
        except (OSError, ValueError):
            return {}
        return reply

    def note_leftovers(self, module: ModuleType) -> None:
        """Note temporary files of a module that are left behind when dltune stops its process."""
        from pathlib import Path

        with _importing():
            import _dltune_leftovers
        _dltune_leftovers.note(module, Path(self.folder))

    def attach(
        self,
        name: str,
        sources: Path,
        build: dict[str, str],
        arguments: Callable[[], tuple[list[str], str]],
    ) -> ctypes.CDLL | None:
        """Build (once) and load the plugin for a framework that has been imported. `sources`: the
        folder of the plugin; `build`: the framework's build, as `messages.Plugin` has it;
        `arguments` returns the compiler's flags and a salt. Return None if that fails."""
        import ctypes

        global _plugin
        facts = {"pid": os.getpid(), "python": sys.version.split()[0], **build}
        try:
            with _importing():
                import _dltune_plugin
            library = _dltune_plugin.library(
                name, sources, *arguments(), lambda: self.tell({"type": "building", **facts})
            )
            plugin = ctypes.CDLL(str(library))
            plugin.dltune_open.restype = ctypes.c_char_p
            hello = json.dumps({"type": "plugin", **facts})
            if complaint := plugin.dltune_open(self._path.encode(), hello.encode()):
                raise RuntimeError(complaint.decode())
        except Exception as error:
            self.tell({"type": "failed", **facts, "reason": str(error)})
            return None
        _plugin = plugin
        owner = os.getpid()  # a forked child must not close what it shares with its parent
        atexit.register(lambda: plugin.dltune_close() if os.getpid() == owner else None)
        return plugin


def start(path: str) -> None:
    """Report this process, take its share of the cores, and watch for what it imports."""
    interpreter = Interpreter(path)
    answer = interpreter.tell(
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
        # where Yama separates processes of the same user (ptrace_scope 1), this lets py-spy sample
        # the process; elsewhere the kernel refuses, and py-spy needs no permission
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(watcher), 0, 0, 0)
    try:
        with open(os.path.join(interpreter.folder, "hooks"), "rb") as file:
            hooks = json.load(file)
    except OSError:  # dltune is gone
        return
    sys.meta_path.insert(0, _Watch(_parts(hooks, answer, interpreter)))


def _readable(text: str) -> str:
    """Replace what is not UTF-8, as in names of old files, because JSON cannot hold it."""
    return os.fsencode(text).decode("utf-8", "replace")


def _parts(
    hooks: Sequence[dict[str, Any]], answer: dict[str, Any], interpreter: Interpreter
) -> Iterator[_Part]:
    """Return the parts in the order in which their hooks of the same module are called."""
    setting = [hook for hook in hooks if hook["settings"]]
    for hook in hooks:
        if hook not in setting:
            yield _Part(hook["packages"], functools.partial(_started, hook, answer, interpreter))
    if (variables := answer.get("environment")) is not None:
        told: _Hooks = [
            (framework, lambda _: _tell_environment(interpreter, variables))
            for framework in dict.fromkeys(hook["packages"][0] for hook in setting)
        ]
        yield _Part((), lambda: (told, {}))
    if values := answer.get("settings"):
        packages = [package for hook in setting for package in hook["packages"]]
        yield _Part(packages, functools.partial(_set, values, setting, interpreter))
    for adapter in answer.get("adapters", ()):
        load = functools.partial(_started, adapter, adapter["orders"], interpreter)
        yield _Part(adapter["packages"], load)


def _started(
    hook: dict[str, Any], orders: dict[str, Any], interpreter: Interpreter
) -> tuple[_Hooks, _Failed]:
    """Import a module of hooks and start it. `orders`: an adapter's own, or dltune's answer."""
    with _importing(*hook["folders"]):
        found: tuple[_Hooks, _Failed] = importlib.import_module(hook["module"]).start(
            orders, interpreter
        )
    return found


def _set(
    values: dict[str, str], hooks: Sequence[dict[str, Any]], interpreter: Interpreter
) -> tuple[_Hooks, _Failed]:
    """Return the hooks of settings in this interpreter."""
    with _importing(*(folder for hook in hooks for folder in hook["folders"])):
        import _dltune_settings

        return list(_dltune_settings.hooks(values, hooks, interpreter.tell)), {}


@contextlib.contextmanager
def _importing(*folders: str) -> Iterator[None]:
    """Have modules of dltune found, in its own folder and in these."""
    searched = (_HERE, *folders)
    sys.path += searched
    try:
        yield
    finally:
        for folder in searched:
            sys.path.remove(folder)


def _tell_environment(interpreter: Interpreter, names: Sequence[str]) -> None:
    """Send the values of variables when the script has imported its framework."""
    found = {name: os.environ[name] for name in names if name in os.environ}
    interpreter.tell({"type": "environment", "pid": os.getpid(), "variables": found})


class _Part:
    """Hooks that are loaded with the first of `packages` that the job imports; without packages, at
    once."""

    def __init__(self, packages: Sequence[str], load: Callable[[], tuple[_Hooks, _Failed]]) -> None:
        self.packages = packages
        self.hooks: _Hooks = []
        self.failed: _Failed = {}
        self._load: Callable[[], tuple[_Hooks, _Failed]] | None = load
        if not packages or any(package in sys.modules for package in packages):
            self.load()

    def load(self) -> set[str]:
        """Load the hooks, once, and return the modules of the job that they wait for. A failure
        leaves the job without these hooks."""
        load, self._load = self._load, None
        if load is None:
            return set()
        try:
            self.hooks, self.failed = load()
        except Exception as error:
            print(f"dltune: could not attach to this Python: {error!r}", file=sys.stderr)
        return self.awaited()

    def awaited(self) -> set[str]:
        """Return the modules of the job that it waits for."""
        packages = self.packages if self._load else ()
        return {*packages, *self.failed, *(module for module, _ in self.hooks)}


class _Watch:
    """A finder that lets modules be imported as before, and calls the hooks of each module after it
    has run, in the order of the parts. If it cannot run, the functions for failures are called."""

    def __init__(self, parts: Iterable[_Part]) -> None:
        self._parts = list(parts)
        self._awaited = {module for part in self._parts for module in part.awaited()}

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name not in self._awaited:
            return None
        for finder in list(sys.meta_path):
            if finder is not self and (spec := finder.find_spec(name, path, target)):
                if spec.loader is not None:  # a caller that only asks does not import it yet
                    loader: Any = _Loader(spec.loader, name, self)
                    spec.loader = loader
                return spec
        self.begin(name)
        self.fail(name, ModuleNotFoundError(f"No module named {name!r}"))
        return None

    def begin(self, name: str) -> None:
        """Prepare for a module that is about to run."""
        for part in self._parts:
            if name in part.packages:
                self._awaited |= part.load()
        self._awaited.discard(name)
        if not self._awaited and self in sys.meta_path:
            sys.meta_path.remove(self)

    def end(self, name: str, module: ModuleType) -> None:
        """Call the hooks of a module that has run."""
        for hook in [hook for part in self._parts for it, hook in part.hooks if it == name]:
            hook(module)

    def fail(self, name: str, error: BaseException) -> None:
        """Call the functions of the parts for a module that could not run."""
        for part in self._parts:
            if failed := part.failed.get(name):
                failed(error)


class _Loader:
    """The loader of one module, which calls the watch before and after the module runs."""

    def __init__(self, inner: Loader, name: str, watch: _Watch) -> None:
        self._inner = inner
        self._name = name
        self._watch = watch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._watch.begin(self._name)
        try:
            self._inner.exec_module(module)
        except BaseException as error:
            self._watch.fail(self._name, error)
            raise
        self._watch.end(self._name, module)

    def __getattr__(self, name: str) -> Any:  # loaders have optional parts, such as get_source
        return getattr(self._inner, name)
