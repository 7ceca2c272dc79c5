"""Inside the job's Python: which layers a step's forward pass goes through, and what they learn."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

# beside this file
from _dltune_torch_calls import Calls
from _dltune_torch_kinds import kind_of


class Modules:
    """`layers`: those that have no layers within them, as `schemas/calls.py` has them, in the
    order in which they end. `number`: of a tensor's storage; `at`: of the call that comes next."""

    def __init__(
        self, torch: ModuleType, number: Callable[[Any], int], at: Callable[[], int]
    ) -> None:
        self.layers: list[tuple[Any, ...]] = []
        self._torch = torch
        self._calls = Calls(torch)
        self._number, self._at = number, at
        self._within: list[tuple[Any, ...]] = []  # layers that run
        self._names: dict[Any, str] = {}
        self._weights: dict[int, int] = {}
        self._hooks: list[Any] = []

    def begin(self) -> None:
        module = self._torch.nn.modules.module
        self._hooks = [
            module.register_module_forward_pre_hook(_harmless(self._enter)),
            module.register_module_forward_hook(_harmless(self._leave), with_kwargs=True),
        ]

    def end(self) -> None:
        module: Any = self._torch.nn.modules.module
        for hook in self._hooks:
            hook.remove()
            # it leaves this behind, with which every module's call takes the longer way
            module._global_forward_hooks_with_kwargs.pop(hook.id, None)
        self._within.clear()
        self._names.clear()

    def _enter(self, module: Any, _: Any) -> None:
        if self._calls.phase != "forward":
            return
        if not self._within:
            self._names |= {one: name for name, one in module.named_modules()}
        self._within.append((module, len(self.layers), self._at()))

    def _leave(self, module: Any, args: Any, kwargs: Any, result: Any) -> None:
        # one whose forward pass has failed is not left
        while self._within and self._within[-1][0] is not module:
            self._within.pop()
        if not self._within or self._calls.phase != "forward":
            return
        _, layers, begun = self._within.pop()
        name = self._names.get(module, "")
        given = self._plain(result)
        if layers < len(self.layers) or begun == self._at() or not given or not name:
            return  # it is its layers, or computes nothing
        weights = [self._weight(one) for one in module.parameters()]
        read = self._plain([args, kwargs])
        reads, gives = ([self._number(one) for one in those] for those in (read, given))
        shapes = [tuple(one.shape) for one in read]
        first = given[0]
        self.layers.append(
            (
                *(name.replace(".", "/"), kind_of(self._torch, module), begun, self._at()),
                *(reads, gives, shapes, tuple(first.shape), first.element_size(), weights),
                *(self._window(module), _groups(module), self._samples(module, first)),
            )
        )

    def _plain(self, value: Any) -> list[Any]:
        return [one for one in self._calls.tensors(value) if self._calls.is_plain(one)]

    def _weight(self, weight: Any) -> tuple[int, int]:
        number = self._weights.setdefault(id(weight), len(self._weights))
        return number, weight.numel() * weight.element_size()

    def _samples(self, module: Any, given: Any) -> int:
        """Which dimension of what it gives out counts samples."""
        recurrent = isinstance(module, self._torch.nn.RNNBase) and not module.batch_first
        return int(recurrent and given.ndim == 3)

    def _window(self, module: Any) -> tuple[int, ...]:
        """Its size along two dimensions, and its stride; empty: it has none."""
        sizes = _pair(getattr(module, "kernel_size", None))
        steps = _pair(getattr(module, "stride", None) or getattr(module, "kernel_size", None))
        return (*sizes, max(steps)) if sizes and steps else ()


def _harmless(act: Callable[..., None]) -> Callable[..., None]:
    """A layer that cannot be told of is left out: that is none of the job's concern."""

    def hook(*given: Any) -> None:
        with contextlib.suppress(Exception):
            act(*given)

    return hook


def _groups(module: Any) -> int:
    """Of a convolution, which takes NumPy's integers, too."""
    try:
        return operator.index(getattr(module, "groups", 1))
    except TypeError:
        return 1


def _pair(value: Any) -> tuple[int, ...]:
    """Of a size along one or two dimensions; empty: of none, or more."""
    sizes = value if isinstance(value, tuple | list) else (value, value)
    if not 1 <= len(sizes) <= 2 or not all(isinstance(one, int) for one in sizes):
        return ()
    return (*(1,) * (2 - len(sizes)), *sizes) if math.prod(sizes) else ()
