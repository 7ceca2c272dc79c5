"""Inside the job's Python: a step's calls are recorded, or what they give out is given up.

Both need a mode and hooks on saved tensors around all that the stepping thread does. Where the
script has its own around its steps, it is left alone. Of one that compiles what it trains the
passes are looked at, and the compiler is told how much to keep.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

# beside this file
from _dltune_torch import at_each_step
from _dltune_torch_calls import Calls, allocated, has_room, note_hooks
from _dltune_torch_compiled import Ladders, enforce, runs
from _dltune_torch_recomputation import recomputing
from _dltune_torch_recording import recording

Tell = Callable[[dict[str, Any]], Any]
_UNCOUNTED = {
    **dict.fromkeys(("live", "forward", "between", "backward", "passes"), 0),
    "graphs": [],
    "failed": "the job does not use PyTorch's own allocator",
}
_PARTITIONERS = "torch._functorch.partitioners"
_WARM = 2  # steps, after which optimizers have their state
_MOST = 16  # steps that are recorded, until one has a forward pass: optimizers may step in turn
_STEPPING: list[int] = []  # the thread that steps first
_GROWN = 1.001  # times: a peak is told again where it is so much higher


def start(
    orders: Mapping[str, Any], interpreter: Any
) -> tuple[list[tuple[str, Callable[[ModuleType], None]]], dict[str, Any]]:
    """Under `orders` for `recomputing`, or for the compiler (`budget`); without any a step is
    recorded."""
    pid = os.getpid()

    def told(message: dict[str, Any]) -> None:
        interpreter.tell({"pid": pid, **message})

    if not orders:
        _without_cache()
        ladders = Ladders()

        def record(torch: ModuleType) -> None:
            note_hooks(torch)
            recorded = _Recorded(torch, ladders, told)
            at_each_step(torch, after=_ours(torch, recorded, recorded.fail))

        return [("torch", record), (_PARTITIONERS, ladders.watch)], {}
    if "budget" in orders:
        _without_cache()
        budget = _Budget(told)

        def count(torch: ModuleType) -> None:
            ends = _ours(torch, lambda: budget.step_ends(torch), budget.leave)
            at_each_step(torch, after=ends)

        def divide(partitioners: ModuleType) -> None:
            enforce(partitioners, orders["budget"], budget.did, budget.leave)

        return [("torch", count), (_PARTITIONERS, divide)], {}

    def give_up(torch: ModuleType) -> None:
        note_hooks(torch)
        enforced = _Enforced(torch, orders, told)
        # a closure computes gradients within the step
        leaves = _ours(torch, enforced.step_begins, enforced.fail, closures=False)
        at_each_step(torch, before=leaves, after=_ours(torch, enforced, enforced.fail))

    return [("torch", give_up)], {}


def _without_cache() -> None:
    """Of divided graphs, for what is taken from it is divided already. A variable, for PyTorch has
    its configuration by thread."""
    os.environ["TORCHINDUCTOR_AUTOGRAD_CACHE"] = "0"


def _ours(
    torch: Any, act: Callable[[], None], fail: Callable[[str], None], *, closures: bool = True
) -> Callable[..., None]:
    """`act` at steps of this process, on the thread that steps first, that are not within a
    backward pass; `closures`: also at those that are given one. Where it raises, `fail` is told
    why, and nothing more is done: no hook may break a job."""
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


def _compiles(torch: ModuleType) -> bool:
    dynamo = sys.modules.get(f"{torch.__name__}._dynamo.utils")
    return bool(dynamo and dynamo.counters["frames"]["total"])


def _why_not(torch: ModuleType) -> str:
    """Why nothing can be around the script's steps; empty: it can."""
    if _compiles(torch):
        return "the script compiles its model"
    if not has_room(torch):
        return "the script runs its steps inside a dispatch mode or hooks on saved tensors"
    return ""


class _Around:
    """A context that is entered at the end of one step and left at that of another. What may not
    have hooks on saved tensors around it, as `torch.func` may not, has none."""

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
        """Whether nothing of the script's has come to stand within."""
        top = self._autograd._top_saved_tensors_default_hooks(True)
        mode = self._dispatch._get_current_dispatch_mode()
        return mode is self.context and bool(top) and top[0] == self.context.pack

    def _leave_child(self) -> bool:
        """Workers of a DataLoader are forked within it."""
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


class _Recorded:
    """One step, once the first ones have run."""

    def __init__(self, torch: ModuleType, ladders: Ladders, tell: Tell) -> None:
        self._torch, self._ladders, self._tell = torch, ladders, tell
        self._steps = self._empty = 0
        self._around: _Around | None = None
        self._passes: _Passes | None = None

    def fail(self, _: str) -> None:
        """A profile without it tells that it has none."""
        if self._passes:
            self._passes.end()
        if self._around:
            self._around.exit()

    def __call__(self) -> None:
        self._steps += 1
        if self._passes:
            if step := self._passes.step_ends():
                graphs = self._ladders.graphs(self._passes.runs)
                step |= {"graphs": graphs, "failed": self._ladders.failed}
                self._tell({"type": "compiled", "step": step})
                self._passes = None
        elif self._steps == _WARM and _compiles(self._torch):
            if allocator := _Allocator.counting():
                self._passes = _Passes(self._torch, allocator)
            else:
                self._tell({"type": "compiled", "step": _UNCOUNTED})
        elif self._steps == _WARM and not _why_not(self._torch):
            allocator = _Allocator.counting()
            context = recording(
                self._torch,
                allocator.peak if allocator else lambda: 0,
                allocator.live if allocator else lambda: 0,
            )
            around = _Around(self._torch, context)
            around.enter()
            self._around = around
        elif self._around and not self._around.is_inmost():
            self._around.context.failed = "the script uses a dispatch mode inside the step"
        elif self._around:
            around, self._around = self._around, None
            around.exit()
            if not around.context.has_forward and self._empty < _MOST:
                self._empty += 1
                self._steps = _WARM - 1
            elif not around.context.failed:
                self._tell({"type": "calls", "step": around.context.told(_Allocator.is_counted)})


class _Passes:
    """Bytes within the second step from now: of the first, gradients are from before."""

    def __init__(self, torch: Any, allocator: _Allocator) -> None:
        self._torch, self._allocator = torch, allocator
        self._began: list[tuple[int, int]] = []  # of backward passes: the most before, and then
        self.runs: list[int] = []
        self._plain = torch.autograd._engine_run_backward
        torch.autograd._engine_run_backward = self._backward

    def _backward(self, *args: Any, **kwargs: Any) -> Any:
        self._began.append((self._allocator.peak(), self._allocator.live()))
        with contextlib.suppress(Exception):  # else it is told that a step runs none
            self.runs = runs(args[0])
        return self._plain(*args, **kwargs)

    def end(self) -> None:
        self._torch.autograd._engine_run_backward = self._plain

    def step_ends(self) -> dict[str, Any] | None:
        """As `documents/compiled.py` has it, once it is known."""
        if not self._allocator.counts_all:
            self._allocator.count_all(self._torch)
            self._began.clear()
            return None
        self.end()
        live = self._allocator.live()
        most, between = self._began[0] if self._began else (live, live)
        return {
            "live": live,
            "forward": most,
            "between": between,
            "backward": self._allocator.peak(),
            "passes": len(self._began),
        }


class _Budget:
    """What came of it that the compiler keeps less, and what steps hold with that."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._divided = False
        self._left = ""
        self._allocator: _Allocator | None = None
        self._steps = self._seen = self._peak = 0

    def did(self) -> None:
        self._divided = True

    def leave(self, why: str) -> None:
        self._left = why

    def step_ends(self, torch: ModuleType) -> None:
        self._steps += 1
        if self._steps == _WARM:
            self._allocator = _Allocator.counting()
            self._say()
            atexit.register(self._say)
        elif self._allocator and not self._allocator.counts_all:
            self._allocator.count_all(torch)
        elif self._allocator:
            self._seen += 1
            peak = self._allocator.peak()
            if peak > _GROWN * self._peak:
                self._peak = peak
                self._say()

    def _say(self) -> None:
        nothing = "" if self._divided else "the script compiles no graph that computes gradients"
        self._tell(
            {
                "type": "given_up",
                "steps": self._seen,
                "groups": int(self._divided),
                "peak": self._peak or None,
                "other": "",
                "left": self._left or nothing,
            }
        )


class _Enforced:
    """From the end of the first step on."""

    def __init__(self, torch: ModuleType, orders: Mapping[str, Any], tell: Tell) -> None:
        self._torch, self._orders, self._tell = torch, orders, tell
        self._around: _Around | None = None
        self._allocator: _Allocator | None = None
        self._steps = self._given_up = 0
        self._peak = 0
        self._other = self._left = ""

    def __call__(self) -> None:
        if self._around:
            self._around.context.come_back()
            # of optimizers that step in turn, none but the first ends a step
            if self._around.context.begun:
                self._steps += 1
                self._note(self._around)
        elif self._steps:
            self._steps += 1
        elif not self._left:
            self._left = _why_not(self._torch)
            if not self._left:
                context = recomputing(self._torch, self._orders, self._begin)
                self._allocator = _Allocator.counting()
                around = _Around(self._torch, context)
                around.enter()
                self._around = around
                atexit.register(self._say)
            else:
                self._say()
        # gradients of the first step are from before, and gone at the end of the second
        if self._allocator and self._steps and not self._allocator.counts_all:
            self._allocator.count_all(self._torch)

    def fail(self, why: str) -> None:
        self._left = why
        if self._around:
            self._around.exit()
            self._around = None
        self._say()

    def step_begins(self) -> None:
        """An optimizer's."""
        if self._around:
            self._around.context.leave()

    def _begin(self) -> None:
        """A step: what comes between two of them, such as validation, is none of either."""
        if self._allocator:
            self._allocator.peak()

    def _note(self, around: _Around) -> None:
        """The step that has ended."""
        context = around.context
        grown = context.given_up > self._given_up or self._steps == 1
        self._given_up = max(self._given_up, context.given_up)
        if self._allocator and self._allocator.counts_all:
            peak = self._allocator.peak()
            grown |= peak > _GROWN * self._peak
            self._peak = max(self._peak, peak)
        if not self._other and (other := context.other):
            self._other, grown = other, True
        context.begin()
        if grown:
            self._say()
        # where nothing is given up, one peak is all that there is to see
        seen = self._peak or not self._allocator
        if not self._orders["groups"] and seen and around.is_inmost():
            around.exit()
            self._around = None

    def _say(self) -> None:
        self._tell(
            {
                "type": "given_up",
                "steps": self._steps,
                "groups": self._given_up,
                "peak": self._peak or None,
                "other": self._other,
                "left": self._left,
            }
        )


class _Allocator:
    """PyTorch's own for the CPU, as the plugin counts it. `counts_all`: also what it gave out
    before."""

    is_counted = False

    def __init__(self, plugin: ctypes.CDLL) -> None:
        self._live: Callable[[], int] = plugin.dltune_memory_live
        self._peak: Callable[[], int] = plugin.dltune_memory_peak
        for function in (self._live, self._peak):
            function.restype = ctypes.c_int64
        self._before = 0
        self.counts_all = False

    @classmethod
    def counting(cls) -> _Allocator | None:
        """None where there is no plugin, as without a compiler."""
        plugin = getattr(sys.modules.get("_dltune_attach"), "_plugin", None)
        if plugin is None or not hasattr(plugin, "dltune_count_memory"):
            return None
        cls.is_counted = bool(plugin.dltune_count_memory())
        return cls(plugin) if cls.is_counted else None

    def count_all(self, torch: ModuleType) -> None:
        """From now on; by all tensors that Python knows."""
        held = {one._cdata: allocated(one) for one in Calls(torch).storages()}
        self._before = sum(held.values()) - self._live()
        self._peak()
        self.counts_all = True

    def live(self) -> int:
        """Bytes now."""
        return self._before + self._live()

    def peak(self) -> int:
        """The most since it was asked last."""
        return self._before + self._peak()
