"""Inside the job's Python: backward passes that it begins, and functions around them.

Only this module replaces PyTorch's function that runs a pass. The plugin is told of each pass; a
script that has no optimizer steps with them.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from _dltune_torch import at_each_step

# changes of a parameter between two passes, where no optimizer has stepped, after which passes
# step; passes after which they are no longer looked for; numbers of a parameter that are looked at
ALONE, LOOKS, NUMBERS = 3, 1000, 1 << 16
# order of functions around a pass, the outermost first: one that leaves dispatch modes, one that
# reads the allocator, and the plugin, which observes what autograd itself runs
MODES, MEMORY, PLUGIN = range(3)


def around_passes(torch: ModuleType, order: int, act: Callable[..., Any]) -> Callable[[], None]:
    """Have `act` called for each pass, with a function that runs the pass, and its arguments.
    Return a function that ends this. Raises AttributeError if this PyTorch runs passes in another
    way."""
    return _engine(torch).add(order, act)


class _Engine:
    """PyTorch's function that runs a pass, and the functions around it."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        autograd: Any = torch.autograd
        self._plain = self._run = autograd._engine_run_backward
        self._around: list[tuple[int, Callable[..., Any]]] = []
        # the second is what `torch.compiler` puts back
        autograd._engine_run_backward = autograd.graph._engine_run_backward = self._pass
        self._leave_uncompiled(self._pass)

    def _pass(self, *arguments: Any, **options: Any) -> Any:
        return self._run(*arguments, **options)

    def add(self, order: int, act: Callable[..., Any]) -> Callable[[], None]:
        self._leave_uncompiled(act)
        entry = order, act
        self._nest([*self._around, entry])
        return lambda: self._nest([one for one in self._around if one is not entry])

    def _nest(self, around: list[tuple[int, Callable[..., Any]]]) -> None:
        self._around = sorted(around, key=lambda one: one[0])
        run = self._plain
        for _, act in reversed(self._around):
            run = functools.partial(act, run)
        self._run = run

    def _leave_uncompiled(self, act: Any) -> None:
        """Keep torch.compile from compiling `act` where compiled code begins a backward pass."""
        with contextlib.suppress(Exception):  # else it can be compiled, which is only slow
            frames = self._torch._C._dynamo.eval_frame
            if hasattr(frames, "skip_code"):  # older releases; skips `act`, not its callees
                frames.skip_code(act.__code__)
                return
            skips = frames._FrameAction.SKIP
            frames.set_code_exec_strategy(act.__code__, frames._FrameExecStrategy(skips, skips))


_engine = functools.cache(_Engine)


def before_first_step(torch: ModuleType, load: Callable[[], Any]) -> None:
    """Has `load` called once, before the first step of this process: the workers of a DataLoader,
    and jobs of other frameworks, import PyTorch too. It gives out the plugin, or None."""
    _Passes(torch, load)


class _Passes:
    def __init__(self, torch: ModuleType, load: Callable[[], Any]) -> None:
        self._torch = torch
        self._load: Callable[[], Any] | None = load
        self._plugin: Any = None
        self._looks = self._changes = 0
        self._before: tuple[Any, Any] = (lambda: None, None)  # a parameter, and its numbers' sum
        at_each_step(torch, before=self._step_begins)
        with contextlib.suppress(AttributeError):  # not the real torch package, or too old
            around_passes(torch, PLUGIN, self._pass)

    def _step_begins(self, *_: Any) -> None:
        # within a backward pass autograd would put back the callbacks of before
        if self._load and not self._within_one():
            self._begin()

    def _begin(self) -> None:
        load, self._load = self._load, None
        if load:
            self._plugin = load()

    def _within_one(self) -> bool:
        task = getattr(getattr(self._torch, "_C", None), "_current_graph_task_id", None)
        return task is not None and task() >= 0

    def _pass(self, run: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self._load and not self._within_one() and self._trains_alone(*arguments):
            self._begin()
            if self._plugin:
                self._plugin.dltune_step_by_passes()
        ends = self._plugin is not None and self._plugin.dltune_pass_begins()
        try:
            return run(*arguments, **options)
        finally:
            if ends:
                self._plugin.dltune_pass_ends()

    def _trains_alone(self, roots: Any, *_: Any) -> bool:
        """Gradients that are gathered over several passes leave parameters as they are."""
        self._looks += 1
        if self._looks > LOOKS:
            return False
        with contextlib.suppress(Exception):  # what is no plain tensor
            parameter = _parameter(roots[0])
            torch = self._torch
            plain = type(parameter) in (torch.Tensor, torch.nn.Parameter)
            traced = torch._C._len_torch_dispatch_stack() > 0  # what is computed may be, too
            if plain and not traced and parameter.untyped_storage().nbytes():
                total = parameter.detach().reshape(-1)[:NUMBERS].sum().item()
                known, before = self._before
                self._before = weakref.ref(parameter), total
                # one that is no number is no change
                self._changes += known() is parameter and total == total and total != before
        return self._changes >= ALONE


def _parameter(root: Any) -> Any:
    """One that it is differentiated by; None: there is none."""
    node = root.grad_fn
    while node is not None and not hasattr(node, "variable"):
        node = next((one for one, _ in node.next_functions if one is not None), None)
    return node and node.variable
