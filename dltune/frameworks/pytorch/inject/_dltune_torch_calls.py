"""Inside the job's Python: tensors that PyTorch's calls below autograd read, return and write."""

from __future__ import annotations

import contextlib
import gc
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any


class Calls:
    """Operators of one PyTorch. Facts about an operator are determined once."""

    def __init__(self, torch: ModuleType) -> None:
        self.torch = torch
        self._tensor = torch.Tensor
        self._plain = torch.Tensor.__torch_dispatch__
        self._writing: dict[Any, tuple[tuple[int, str], ...]] = {}
        self._idle: dict[Any, bool] = {}
        self._wrapped: Callable[[Any], bool] = torch._C._functorch.is_functorch_wrapped_tensor
        self._within: Callable[[], int] = torch._C._current_graph_task_id

    @property
    def phase(self) -> str:
        """Phase of the present call: autograd runs it, is to differentiate it, or neither."""
        if self._within() >= 0:
            return "backward"
        return "forward" if self.torch.is_grad_enabled() else "aside"

    def makes_nothing(self, operator: Any) -> bool:
        """Return True if it returns no tensor, as `item`, or only views of its arguments, and
        writes none, as `_foreach_add_` does."""
        known = self._idle.get(operator)
        if known is None:
            given = [one for one in operator._schema.returns if "Tensor" in str(one.type)]
            views = all(one.alias_info and not one.alias_info.is_write for one in given)
            idle = views and not self._written_places(operator)
            known = self._idle[operator] = operator.namespace == "profiler" or idle
        return known

    def writes(self, operator: Any) -> bool:
        """Return True if it writes any of its arguments."""
        return bool(self._written_places(operator))

    def written(self, operator: Any, args: Any, kwargs: Any) -> list[Any]:
        """Return the tensors that it writes among its arguments."""
        places = self._written_places(operator)
        values = (args[place] if place < len(args) else kwargs.get(name) for place, name in places)
        return [tensor for value in values for tensor in self.tensors(value)]

    def _written_places(self, operator: Any) -> tuple[tuple[int, str], ...]:
        """Return the arguments that it writes, by place and name."""
        if (places := self._writing.get(operator)) is None:
            places = self._writing[operator] = tuple(
                (place, argument.name)
                for place, argument in enumerate(operator._schema.arguments)
                if argument.alias_info and argument.alias_info.is_write
            )
        return places

    def draws(self, operator: Any) -> bool:
        """Return True if it draws random numbers."""
        return self.torch.Tag.nondeterministic_seeded in operator.tags

    def storages(self) -> Iterator[Any]:
        """Yield the storages of all tensors that Python knows, some of them several times."""
        for one in gc.get_objects():
            if issubclass(type(one), self._tensor) and self.is_plain(one):
                with contextlib.suppress(RuntimeError, ValueError):  # it has no memory yet
                    yield one.untyped_storage()

    def tensors(self, value: Any) -> Iterator[Any]:
        """Yield the tensors in a call's arguments or results."""
        if isinstance(value, self._tensor):
            yield value
        elif isinstance(value, list | tuple):
            for one in value:
                yield from self.tensors(one)
        elif isinstance(value, dict):
            yield from self.tensors(list(value.values()))

    def is_plain(self, tensor: Any) -> bool:
        """Return True if its memory is a CPU storage that holds all of it, unlike tensors of
        `torch.func`."""
        return (
            type(tensor).__torch_dispatch__ is self._plain
            and not self._wrapped(tensor)
            and tensor.layout is self.torch.strided
            and tensor.device.type == "cpu"
        )


LAYERS, REPEATS = 50, 9  # of the small network by which `crossing` is measured


def crossing(torch: ModuleType) -> float:
    """Return the seconds by which a call of the forward pass is longer that goes through Python, as
    does what autograd keeps of it: in a mode, and with hooks on saved tensors. The median of
    `REPEATS` pairs of passes over a network of small layers, with and without. 0 if that fails: the
    job goes on, and its profile has all else."""
    observes: Any = torch.autograd._enable_record_function
    observes(False)  # these calls are none of the job's
    try:
        return _crossing(torch)
    except Exception:
        return 0.0
    finally:
        observes(True)


def _crossing(torch: ModuleType) -> float:
    linear, relu = torch.nn.functional.linear, torch.relu
    plain: dict[str, Any] = {"device": "cpu", "dtype": torch.float32}
    weights, given = torch.ones(8, 8, requires_grad=True, **plain), torch.ones(4, 8, **plain)
    below_modes: Any = torch._C._DisableTorchDispatch

    class Through(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[name-defined, misc]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    def pack(tensor: Any) -> Any:
        with below_modes():
            return tensor.detach()

    def passes(*contexts: Any) -> float:
        with contextlib.ExitStack() as stack:
            began = time.perf_counter()
            for context in contexts:
                stack.enter_context(context)
            values = given
            for _ in range(LAYERS):
                values = relu(linear(values, weights))
            last = values.sum()
        torch.autograd.grad(last, weights)
        return time.perf_counter() - began

    hooks = torch.autograd.graph.saved_tensors_hooks
    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        passes()
        longer = [
            passes(hooks(pack, lambda kept: kept), Through()) - passes() for _ in range(REPEATS)
        ]
    return max(0.0, statistics.median(longer) / (2 * LAYERS))


def name_of(operator: Any) -> str:
    """Return the operator's name, as in "aten.relu_.default"."""
    return str(operator)


def allocated(storage: Any) -> int:
    """Return its bytes; 0 if they are not from the allocator but, say, from NumPy or a worker."""
    return storage.nbytes() if storage.resizable() else 0


def note_hooks(torch: ModuleType) -> None:
    """Track the active hooks on saved tensors for a PyTorch that does not report them, such as
    2.6: all are pushed and popped by these two functions."""
    autograd: Any = torch._C._autograd
    if hasattr(autograd, "_top_saved_tensors_default_hooks"):
        return
    push, pop = (
        getattr(autograd, f"_{verb}_saved_tensors_default_hooks") for verb in ("push", "pop")
    )
    own = threading.local()

    def pushed(*hooks: Any) -> None:
        push(*hooks)
        vars(own).setdefault("stand", []).append(hooks)

    def popped() -> None:
        pop()
        own.stand.pop()

    autograd._push_saved_tensors_default_hooks = pushed
    autograd._pop_saved_tensors_default_hooks = popped
    autograd._top_saved_tensors_default_hooks = lambda _: next(
        reversed(vars(own).get("stand", ())), None
    )


def has_room(torch: ModuleType) -> bool:
    """Return True if the script has neither an active mode nor active hooks on saved tensors:
    when it left its mode or hooks later, it would remove ours."""
    top: Any = torch._C._autograd._top_saved_tensors_default_hooks
    return torch._C._len_torch_dispatch_stack() == 0 and top(True) is None
