"""Inside the job's Python: backward passes that it begins. The plugin is told of them; and a script
that has no optimizer steps with them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from _dltune_torch import at_each_step

# passes since which a parameter has changed though no optimizer has stepped
ALONE = 3


def before_first_step(torch: ModuleType, load: Callable[[], Any]) -> None:
    """Has `load` called once, before the first step of this process: the workers of a DataLoader,
    and jobs of other frameworks, import PyTorch too. It gives out the plugin, or None."""
    _Passes(torch, load)


class _Passes:
    def __init__(self, torch: ModuleType, load: Callable[[], Any]) -> None:
        self._torch = torch
        self._load: Callable[[], Any] | None = load
        self._plugin: Any = None
        self._changes = 0
        self._before: Any = None
        at_each_step(torch, before=self._step_begins)
        run = getattr(getattr(torch, "autograd", None), "_engine_run_backward", None)
        if run is not None:
            self._run = run
            torch.autograd._engine_run_backward = self._pass

    def _step_begins(self, *_: Any) -> None:
        # within a backward pass autograd would put back the callbacks of before
        if self._load and not self._within_one():
            self._begin(self._load)

    def _begin(self, load: Callable[[], Any]) -> None:
        self._load = None
        self._plugin = load()

    def _within_one(self) -> bool:
        task = getattr(getattr(self._torch, "_C", None), "_current_graph_task_id", None)
        return task is not None and task() >= 0

    def _pass(self, *arguments: Any, **options: Any) -> Any:
        if self._load and not self._within_one() and self._trains_alone(*arguments):
            self._begin(self._load)
            if self._plugin:
                self._plugin.dltune_step_by_passes()
        ends = self._plugin is not None and self._plugin.dltune_pass_begins()
        try:
            return self._run(*arguments, **options)
        finally:
            if ends:
                self._plugin.dltune_pass_ends()

    def _trains_alone(self, roots: Any, *_: Any) -> bool:
        """Gradients that are gathered over several passes leave parameters as they are."""
        value = None
        with contextlib.suppress(Exception):  # what is no plain tensor
            value = _sum_of_parameter(roots[0])
        self._changes += None not in (value, self._before) and value != self._before
        self._before = value
        return self._changes >= ALONE


def _sum_of_parameter(root: Any) -> Any:
    """Of a parameter that it is differentiated by; None: there is none."""
    node = root.grad_fn
    while node is not None and not hasattr(node, "variable"):
        node = next((one for one, _ in node.next_functions if one is not None), None)
    return None if node is None else node.variable.detach().sum().item()
