"""Inside the job's Python: a step's calls are recorded, or what they give out is given up.

Both need a mode and hooks on saved tensors around all that the stepping thread does. Where the
script has its own around its steps, it is left alone.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

# beside this file
from _dltune_torch import at_each_step
from _dltune_torch_calls import Calls, allocated, has_room
from _dltune_torch_recomputation import recomputing
from _dltune_torch_recording import recording

Tell = Callable[[dict[str, Any]], Any]
_WARM = 2  # steps, after which optimizers have their state
_GROWN = 1.001  # times: a peak is told again where it is so much higher


def start(
    orders: Mapping[str, Any], tell: Tell
) -> tuple[list[tuple[str, Callable[[ModuleType], None]]], dict[str, Any]]:
    """Under `orders` for `recomputing`; without any a step is recorded."""
    pid = os.getpid()

    def told(message: dict[str, Any]) -> None:
        tell({"pid": pid, **message})

    def begin(torch: ModuleType) -> None:
        if not orders:
            at_each_step(torch, after=_ours(torch, _Recorded(torch, told)))
            return
        enforced = _Enforced(torch, orders, told)
        # a closure computes gradients within the step
        leaves = _ours(torch, enforced.step_begins, closures=False)
        at_each_step(torch, before=leaves, after=_ours(torch, enforced))

    return [("torch", begin)], {}


def _ours(torch: Any, act: Callable[[], None], *, closures: bool = True) -> Callable[..., None]:
    """`act` at steps of this process that are not within a backward pass; `closures`: also at those
    that are given one."""
    pid = os.getpid()
    within: Callable[[], int] = torch._C._current_graph_task_id

    def hook(_: Any, given: tuple[Any, ...]) -> None:
        closed = any(one is not None for one in given)
        if (closures or not closed) and within() < 0 and os.getpid() == pid:
            act()

    return hook


def _why_not(torch: ModuleType) -> str:
    """Why nothing can be around the script's steps; empty: it can."""
    dynamo = sys.modules.get(f"{torch.__name__}._dynamo.utils")
    if dynamo and dynamo.counters["frames"]["total"]:
        return "the script compiles what it trains"
    if not has_room(torch):
        return (
            "its steps are within a dispatch mode, or hooks on saved tensors, of the script's own"
        )
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
        self.context = context
        self._away = 0

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

    def __init__(self, torch: ModuleType, tell: Tell) -> None:
        self._torch, self._tell = torch, tell
        self._steps = 0
        self._around: _Around | None = None

    def __call__(self) -> None:
        self._steps += 1
        if self._steps == _WARM and not _why_not(self._torch):
            allocator = _Allocator.counting()
            context = recording(
                self._torch,
                allocator.peak if allocator else lambda: 0,
                allocator.live if allocator else lambda: 0,
            )
            self._around = _Around(self._torch, context)
            self._around.enter()
        elif self._around:
            around, self._around = self._around, None
            around.exit()
            if not around.context.failed:
                self._tell({"type": "calls", "step": around.context.told(_Allocator.is_counted)})


class _Enforced:
    """From the end of the first step on."""

    def __init__(self, torch: ModuleType, orders: Mapping[str, Any], tell: Tell) -> None:
        self._torch, self._orders, self._tell = torch, orders, tell
        self._around: _Around | None = None
        self._allocator: _Allocator | None = None
        self._before: int | None = None  # bytes from before they were counted
        self._steps = self._given_up = 0
        self._peak = 0
        self._other = self._left = ""

    def __call__(self) -> None:
        if self._around or self._steps:
            self._steps += 1
        if self._around:
            self._around.context.come_back()
            self._note(self._around)
        elif not self._steps and not self._left:
            self._left = _why_not(self._torch)
            if not self._left:
                context = recomputing(self._torch, self._orders, self._begin)
                self._allocator = _Allocator.counting()
                self._around = _Around(self._torch, context)
                self._around.enter()
                atexit.register(self._say)
            else:
                self._say()
        # gradients of the first step are from before, and gone at the end of the second
        if self._allocator and self._steps and self._before is None:
            self._before = _held(self._torch) - self._allocator.live()

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
        if self._allocator and self._before is not None:
            peak = self._before + self._allocator.peak()
            grown |= peak > _GROWN * self._peak
            self._peak = max(self._peak, peak)
        if not self._other and (other := context.other):
            self._other, grown = other, True
        context.begin()
        if grown:
            self._say()
        # where nothing is given up, one peak is all that there is to see
        if not self._orders["groups"] and (self._peak or not self._allocator):
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
    """PyTorch's own for the CPU, as the plugin counts it."""

    is_counted = False

    def __init__(self, plugin: ctypes.CDLL) -> None:
        self.live: Callable[[], int] = plugin.dltune_memory_live
        self.peak: Callable[[], int] = plugin.dltune_memory_peak
        for function in (self.live, self.peak):
            function.restype = ctypes.c_int64

    @classmethod
    def counting(cls) -> _Allocator | None:
        """None where there is no plugin, as without a compiler."""
        plugin = getattr(sys.modules.get("_dltune_attach"), "_plugin", None)
        if plugin is None or not hasattr(plugin, "dltune_count_memory"):
            return None
        cls.is_counted = bool(plugin.dltune_count_memory())
        return cls(plugin) if cls.is_counted else None


def _held(torch: ModuleType) -> int:
    """Bytes of all tensors that Python knows."""
    return sum({one._cdata: allocated(one) for one in Calls(torch).storages()}.values())
