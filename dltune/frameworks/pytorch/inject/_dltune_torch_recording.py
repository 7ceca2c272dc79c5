"""Inside the job's Python: one step as PyTorch called it, with the lifetimes of its memory.

For a script that compiles the modules it trains, the bytes of both passes are recorded instead.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

# next to this file
from _dltune_torch import at_each_step
from _dltune_torch_calls import Calls, allocated, crossing, name_of, note_hooks
from _dltune_torch_compiled import PARTITIONERS, Ladders, runs, without_cache
from _dltune_torch_modules import Modules
from _dltune_torch_passes import MEMORY, around_passes
from _dltune_torch_steps import (
    WARM,
    Allocator,
    Around,
    Tell,
    has_compiled,
    obstacle,
    step_hook,
    teller,
)

LONGEST = 20.0  # seconds of checking the holders of all living storages, at each call
_MOST = 16  # steps that are recorded, until one has a forward pass: optimizers can step in turn
_UNCOUNTED = {
    **dict.fromkeys(("live", "forward", "between", "backward", "passes"), 0),
    "graphs": [],
    "failed": "the job does not use PyTorch's own allocator",
}


def start(
    _: Mapping[str, Any], interpreter: Any
) -> tuple[list[tuple[str, Callable[[ModuleType], None]]], dict[str, Any]]:
    """Return modules of the job and the functions to call after their import."""
    without_cache()
    ladders = Ladders()
    tell = teller(interpreter)

    def record(torch: ModuleType) -> None:
        note_hooks(torch)
        recorded = _Recorded(torch, ladders, tell)
        at_each_step(torch, after=step_hook(torch, recorded, recorded.fail))

    return [("torch", record), (PARTITIONERS, ladders.watch)], {}


class _Recorded:
    """One step, once the first ones have run."""

    def __init__(self, torch: ModuleType, ladders: Ladders, tell: Tell) -> None:
        self._torch, self._ladders, self._tell = torch, ladders, tell
        self._steps = self._empty = 0
        self._around: Around | None = None
        self._passes: _Passes | None = None

    def fail(self, _: str) -> None:
        """End the recording. A profile without a recorded step says that it has none."""
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
        elif self._steps == WARM and has_compiled(self._torch):
            if allocator := Allocator.counting():
                self._passes = _Passes(self._torch, allocator)
            else:
                self._tell({"type": "compiled", "step": _UNCOUNTED})
        elif self._steps == WARM and not obstacle(self._torch):
            allocator = Allocator.counting()
            context = recording(
                self._torch,
                allocator.peak if allocator else lambda: 0,
                allocator.live if allocator else lambda: 0,
            )
            around = Around(self._torch, context)
            around.enter()
            self._around = around
        elif self._around and not self._around.is_inmost():
            self._around.context.failed = "the script uses a dispatch mode inside the step"
        elif self._around:
            around, self._around = self._around, None
            around.exit()
            if not around.context.has_forward and self._empty < _MOST:
                self._empty += 1
                self._steps = WARM - 1
            elif not around.context.failed:
                step = around.context.told(Allocator.is_counted)
                self._tell({"type": "calls", "step": step | {"crossing": crossing(self._torch)}})


class _Passes:
    """Bytes within the second step from now: in the first, gradients are from before."""

    def __init__(self, torch: Any, allocator: Allocator) -> None:
        self._torch, self._allocator = torch, allocator
        self._began: list[tuple[int, int]] = []  # of backward passes: the most before, and then
        self.runs: list[int] = []
        self.end = around_passes(torch, MEMORY, self._backward)

    def _backward(self, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._began.append((self._allocator.peak(), self._allocator.live()))
        with contextlib.suppress(Exception):  # otherwise the message says that a step runs none
            self.runs = runs(args[0])
        return run(*args, **kwargs)

    def step_ends(self) -> dict[str, Any] | None:
        """Return the step in the form of `schemas/compiled.py`, once it is known."""
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


class _Storage:
    """`born`: the call that returned it, -1 if from before. `held`, `gone`: the last call at whose
    start somebody other than autograd had it, and anybody. `saved`: handles that autograd has.
    `read`: whether somebody had it when autograd read it first; None: it has not. From then on
    its holders are not known."""

    __slots__ = ("born", "bytes", "gone", "held", "read", "saved", "weak")

    def __init__(self, bytes: int, born: int, weak: int) -> None:
        self.bytes = bytes
        self.born = self.held = self.gone = born
        self.saved = 0
        self.read: bool | None = None
        self.weak = weak


class _Handle:
    """Placeholder that autograd keeps for a tensor."""

    __slots__ = ("number", "storage", "tensor")

    def __init__(self, tensor: Any, number: int, storage: _Storage | None) -> None:
        self.tensor, self.number, self.storage = tensor, number, storage
        if storage:
            storage.saved += 1

    def __del__(self) -> None:
        if self.storage:
            self.storage.saved -= 1


def recording(torch: ModuleType, peak: Callable[[], int], live: Callable[[], int]) -> Any:
    """Return a context that records the calls of its thread. `peak`: the most bytes of the
    allocator since the last call of `peak`; `live`: its bytes now."""
    calls = Calls(torch)
    count: Callable[[int], int] = torch._C._storage_Use_Count
    by_itself = _references_to_itself(torch)

    class Recording(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[tuple[Any, ...]] = []
            self.storages: list[_Storage] = []
            self.saved: list[tuple[int, int]] = []
            self.read: list[tuple[int, int]] = []
            self._number: dict[int, int] = {}  # of living storages, by address
            self._quiet = False
            self._looked = 0.0  # seconds of checking living storages
            self._modules = Modules(torch, self._of, lambda: len(self.calls))
            self.failed = ""

        def told(self, counted: bool) -> dict[str, Any]:
            """Return the recording in the form that dltune reads."""
            return {
                "calls": self.calls,
                "storages": [(one.bytes, one.born, one.held, one.gone) for one in self.storages],
                "saved": self.saved,
                "read": self.read,
                "layers": self._modules.layers,
                "counted": counted,
            }

        @property
        def has_forward(self) -> bool:
            return any(phase == "forward" for _, phase, *_ in self.calls)

        def __enter__(self) -> Any:
            for storage in calls.storages():
                self._of_storage(storage)
            torch._C._autograd._push_saved_tensors_default_hooks(self.pack, self.unpack)
            self._modules.begin()
            return super().__enter__()

        def __exit__(self, *error: Any) -> None:
            super().__exit__(*error)
            self._modules.end()
            torch._C._autograd._pop_saved_tensors_default_hooks()
            self._look()
            for number in self._number.values():
                torch.UntypedStorage._free_weak_ref(self.storages[number].weak)
            self._number.clear()

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if self._quiet or self.failed or calls.makes_nothing(func):
                return func(*args, **kwargs)
            with self._careful():
                begun = self._begin(func, args, kwargs)
            before = live()
            peak()
            began = time.perf_counter()
            result = func(*args, **kwargs)
            seconds = time.perf_counter() - began
            with self._careful():
                self._end(func, begun, result, seconds, peak() - before)
            return result

        @contextlib.contextmanager
        def _careful(self) -> Iterator[None]:
            """Keep failures here from the job."""
            try:
                yield
            except Exception as error:
                self.failed = repr(error)

        def _begin(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
            """Return its inputs and written tensors, and if it could be given the same inputs
            again."""
            self._look()
            given = list(calls.tensors([args, kwargs]))
            plain = all(map(calls.is_plain, given)) and kwargs.get("generator") is None
            written = calls.written(func, args, kwargs)
            reads = [self._of(one) for one in given if calls.is_plain(one)]
            writes = [self._of(one) for one in written if calls.is_plain(one)]
            return calls.phase, reads, writes, plain

        def _end(
            self, func: Any, begun: tuple[Any, ...], result: Any, seconds: float, most: int
        ) -> None:
            phase, reads, writes, plain = begun
            gives: list[int] = []
            for one in calls.tensors(result):
                if not calls.is_plain(one):
                    plain = False
                    continue
                number = self._of(one, born=len(self.calls))
                if self.storages[number].born == len(self.calls) and number not in gives:
                    gives.append(number)
            scratch = max(0, most - sum(self.storages[number].bytes for number in gives))
            name, draws = name_of(func), calls.draws(func)
            self.calls.append((name, phase, seconds, scratch, reads, gives, writes, plain, draws))

        def _of(self, tensor: Any, born: int = -1) -> int:
            return self._of_storage(tensor.untyped_storage(), born)

        def _of_storage(self, storage: Any, born: int = -1) -> int:
            number = self._number.get(storage._cdata)
            if number is None:
                number = self._number[storage._cdata] = len(self.storages)
                # its address is not used again as long as there is a weak reference
                self.storages.append(_Storage(allocated(storage), born, storage._weak_ref()))
            return number

        def _look(self) -> None:
            """Check the holders of living storages, as the next call starts."""
            began, at = time.perf_counter(), len(self.calls)
            ended = []
            for address, number in self._number.items():
                one = self.storages[number]
                references = count(one.weak)
                if not references:
                    ended.append(address)
                    continue
                one.gone = at
                if one.read or (one.read is None and references > one.saved + by_itself):
                    one.held = at
            for address in ended:
                number = self._number.pop(address)
                torch.UntypedStorage._free_weak_ref(self.storages[number].weak)
            self._looked += time.perf_counter() - began
            if self._looked > LONGEST:
                self.failed = "the step has too many calls and tensors to record"

        def pack(self, tensor: Any) -> _Handle:
            if self.failed or not calls.is_plain(tensor):
                return _Handle(tensor.detach(), -1, None)
            self._quiet = True
            try:
                alias = tensor.detach()
            finally:
                self._quiet = False
            number = self._of(alias)
            self.saved.append((number, len(self.calls)))
            return _Handle(alias, number, self.storages[number])

        def unpack(self, handle: _Handle) -> Any:
            if one := handle.storage:
                self.read.append((handle.number, len(self.calls)))
                if one.read is None:
                    one.read = count(one.weak) > one.saved + by_itself
            return handle.tensor

    return Recording()


def _references_to_itself(torch: ModuleType) -> int:
    """Return the references that a storage has because Python has seen it."""
    tensor = torch.empty(1)
    weak = tensor.untyped_storage()._weak_ref()
    references: int = torch._C._storage_Use_Count(weak)
    torch.UntypedStorage._free_weak_ref(weak)
    return references - 1  # the tensor's
