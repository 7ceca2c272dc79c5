"""Inside the job's Python: hooks and contexts around a script's steps, and the allocator's bytes.

A context is a dispatch mode and hooks on saved tensors, around all work of the stepping thread. A
script that already has a mode or such hooks around its steps is left alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

# next to this file
from _dltune_torch_calls import Calls, allocated, has_room

Tell = Callable[[dict[str, Any]], Any]
WARM = 2  # steps, after which optimizers have their state
_STEPPING: list[int] = []  # the thread that steps first


def teller(interpreter: Any) -> Tell:
    """Return a function that sends messages of this process to dltune."""
    pid = os.getpid()
    return lambda message: interpreter.tell({"pid": pid, **message})


def step_hook(
    torch: Any, act: Callable[[], None], fail: Callable[[str], None], *, closures: bool = True
) -> Callable[..., None]:
    """Return a hook for `at_each_step`. It calls `act` at steps of this process, on the thread that
    steps first, outside backward passes. `closures`: also at steps that are given a closure. If
    `act` raises, the hook calls `fail` with the reason and does nothing more, because no hook must
    break a job."""
    pid = os.getpid()
    within: Callable[[], int] = torch._C._current_graph_task_id

    failed: list[str] = []

    def hook(_: Any, given: tuple[Any, ...]) -> None:
        closed = any(one is not None for one in given)
        if (closures or not closed) and within() < 0 and os.getpid() == pid:
            if not _STEPPING:
                _STEPPING.append(threading.get_ident())
            if threading.get_ident() == _STEPPING[0] and not failed:
                try:
                    act()
                except Exception as error:
                    failed.append(f"{type(error).__name__}: {error}")
                    with contextlib.suppress(Exception):
                        fail(failed[0])

    return hook


def has_compiled(torch: ModuleType) -> bool:
    """Return True if the script has compiled code itself."""
    dynamo = sys.modules.get(f"{torch.__name__}._dynamo.utils")
    return bool(dynamo and dynamo.counters["frames"]["total"])


def obstacle(torch: ModuleType) -> str:
    """Return why nothing can be around the script's steps; empty: it can."""
    if has_compiled(torch):
        return "the script compiles its model"
    if not has_room(torch):
        return "the script runs its steps inside a dispatch mode or hooks on saved tensors"
    return ""


class Around:
    """A context that is entered at the end of one step and left at the end of another. Code that
    must not have hooks on saved tensors around it, such as `torch.func`, has none."""

    def __init__(self, torch: ModuleType, context: Any) -> None:
        self._autograd: Any = torch._C._autograd
        self._disable, self._enable = (
            getattr(self._autograd, f"_saved_tensors_hooks_{verb}")
            for verb in ("disable", "enable")
        )
        self._dispatch: Any = torch.utils._python_dispatch
        self.context = context
        self._away = 0
        leave = weakref.WeakMethod(self._leave_child)
        os.register_at_fork(after_in_child=lambda: (left := leave()) and left())

    def is_inmost(self) -> bool:
        """Return True if the script has entered nothing within this context."""
        top = self._autograd._top_saved_tensors_default_hooks(True)
        mode = self._dispatch._get_current_dispatch_mode()
        return mode is self.context and bool(top) and top[0] == self.context.pack

    def _leave_child(self) -> bool:
        """Leave the context in a DataLoader's workers, which are forked within it."""
        if inmost := self.is_inmost():
            self._dispatch._pop_mode()
            self._autograd._pop_saved_tensors_default_hooks()
        return inmost

    def enter(self) -> None:
        self.context.__enter__()
        self._autograd._saved_tensors_hooks_disable = self._leave
        self._autograd._saved_tensors_hooks_enable = self._return

    def exit(self) -> None:
        self._autograd._saved_tensors_hooks_disable = self._disable
        self._autograd._saved_tensors_hooks_enable = self._enable
        self.context.__exit__(None, None, None)

    def _leave(self, *arguments: Any) -> None:
        top = self._autograd._top_saved_tensors_default_hooks(True)
        if top and top[0] == self.context.pack:
            self._autograd._pop_saved_tensors_default_hooks()
            self._away += 1
        self._disable(*arguments)

    def _return(self) -> None:
        self._enable()
        if self._away:
            self._away -= 1
            self._autograd._push_saved_tensors_default_hooks(self.context.pack, self.context.unpack)


class Allocator:
    """PyTorch's own for the CPU, as the plugin counts it. `counts_all`: also its earlier
    allocations."""

    is_counted = False

    def __init__(self, plugin: ctypes.CDLL) -> None:
        self._live: Callable[[], int] = plugin.dltune_memory_live
        self._peak: Callable[[], int] = plugin.dltune_memory_peak
        for function in (self._live, self._peak):
            function.restype = ctypes.c_int64
        self._before = 0
        self.counts_all = False

    @classmethod
    def counting(cls) -> Allocator | None:
        """Return the allocator; None if there is no plugin, as without a compiler."""
        plugin = getattr(sys.modules.get("_dltune_attach"), "_plugin", None)
        if plugin is None or not hasattr(plugin, "dltune_count_memory"):
            return None
        cls.is_counted = bool(plugin.dltune_count_memory())
        return cls(plugin) if cls.is_counted else None

    def count_all(self, torch: ModuleType) -> None:
        """Count all from now on, by the tensors that Python knows."""
        held = {one._cdata: allocated(one) for one in Calls(torch).storages()}
        self._before = sum(held.values()) - self._live()
        self._peak()
        self.counts_all = True

    def live(self) -> int:
        """Return the bytes in use now."""
        return self._before + self._live()

    def peak(self) -> int:
        """Return the most bytes since the last call."""
        return self._before + self._peak()
