"""Inside the job's Python: what autograd keeps is given up, and computed again where it is read."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

# of dltune's core
from _dltune_torch_calls import Calls, name_of
from _dltune_torch_passes import MODES, around_passes

# of Python's, for a group that is computed again for another; and for all else
FRAMES, BESIDE = 8, 1000
# its schema does not declare that it writes `running_mean` and `running_var`, where it trains
_BATCH_NORM = "aten.native_batch_norm.default"


class _Kept:
    """An argument that stays as it is until it is needed."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


class _Part:
    """A tensor in the value given out at `slot`."""

    __slots__ = ("offset", "size", "slot", "stride")

    def __init__(self, slot: int, tensor: Any) -> None:
        self.slot = slot
        self.size, self.stride = tensor.size(), tensor.stride()
        self.offset = tensor.storage_offset()

    def of(self, whole: Any) -> Any:
        return whole.as_strided(self.size, self.stride, self.offset)


class _Read:
    """A part of a recipe's output, which ends with its last reader: within the recipe itself its
    parts are independent."""

    __slots__ = ("part", "recipe")

    def __init__(self, recipe: _Recipe, part: _Part) -> None:
        self.recipe, self.part = recipe, part


class _Recipe:
    """Calls of one step that can be made again: for each the operator, its arguments, and the
    random numbers that came next. `reads`: as the plan counts them, of the run that they are of
    now. `values`: results that have been computed and are read again, by slot."""

    __slots__ = ("calls", "dtypes", "length", "plan", "reads", "run", "values")

    def __init__(self, calls: int, reads: Sequence[Sequence[int]]) -> None:
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self.length = calls
        self.plan = reads
        self.run = 0
        self.reads = list(reads[0])
        self.values: dict[int, Any] = {}
        self.dtypes: list[Any] = []

    @property
    def whole(self) -> bool:
        return len(self.calls) == self.length

    def next(self) -> None:
        self.run += 1
        slots = len(self.dtypes)
        self.reads = list(self.plan[self.run]) if self.run < len(self.plan) else [0] * slots


def recomputing(torch: ModuleType, orders: Mapping[str, Any], at_first: Callable[[], None]) -> Any:
    """Return a context in which each step gives up the results that `orders` list: `forward`, the
    names of a step's calls that autograd is to differentiate, and `groups` of them with their
    `calls`, and `reads` before the first run and after each. Other calls between these are not
    planned for, such as a loader's where an epoch begins. `at_first` is called before the first of
    them."""
    calls = Calls(torch)
    below_modes: Any = torch._C._DisableTorchDispatch
    ordinary = torch.Tensor.__torch_dispatch__  # not of a class that detaches in its own way
    autograd = torch._C._autograd
    dispatch: Any = torch.utils._python_dispatch

    class Recomputing(dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.names: Sequence[str] = orders["forward"]
            self.groups = {
                call: number
                for number, group in enumerate(orders["groups"])
                for call in group["calls"]
            }
            # a group can be computed from another again, and that from a third
            deepest = FRAMES * len(orders["groups"])
            sys.setrecursionlimit(max(sys.getrecursionlimit(), BESIDE + deepest))
            self.given_up = 0  # groups of this step
            self.begun = False  # whether anything of it was to be differentiated
            # by the operator's identity, as its hash takes Python: if it makes nothing, its name,
            # and if it writes
            self._known: dict[int, tuple[bool, str, bool]] = {}
            self._operators: list[Any] = []  # so that their identities stay theirs
            self._at = 0
            self._recipes: dict[int, _Recipe] = {}
            self._made: dict[int, tuple[_Recipe, int, int]] = {}
            self._inputs: dict[int, list[weakref.ref[_Kept]]] = {}
            self._quiet = self._away = False

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Compiled code is not run in this mode: without PyTorch's guard, calls are faster."""
            return False

        def __enter__(self) -> Any:
            autograd._push_saved_tensors_default_hooks(self.pack, self.unpack)
            self._leave_passes = around_passes(torch, MODES, self._backward)
            return super().__enter__()

        def __exit__(self, *error: Any) -> None:
            super().__exit__(*error)
            self._leave_passes()
            autograd._pop_saved_tensors_default_hooks()
            self.begin()

        def _backward(self, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            """A backward pass: none of its calls is planned for, so that none is to pass here."""
            if dispatch._get_current_dispatch_mode() is not self:
                return run(*args, **kwargs)
            try:
                with dispatch._pop_mode_temporarily():
                    return run(*args, **kwargs)
            finally:
                self._forget()

        def leave(self) -> None:
            """Stop: no later call is planned for. Where results are still to be computed again, the
            mode stays: tensors that they read can be written."""
            if dispatch._get_current_dispatch_mode() is self and not (self._made or self._inputs):
                dispatch._pop_mode()
                self._away = True

        def come_back(self) -> None:
            if self._away:
                dispatch._push_mode(self)
                self._away = False

        def begin(self) -> None:
            """A step."""
            self._let_go()
            self._forget()
            self._at = 0
            self.given_up = 0
            self.begun = False

        @property
        def other(self) -> str:
            """Return how this step, which has ended, differs from the planned step; empty: it does
            not."""
            if self.given_up == len(orders["groups"]):
                return ""
            if self._at < len(self.names):
                return f"call {self._at}, {self.names[self._at]}, is missing"
            return "its calls write to other tensors"

        def _let_go(self) -> None:
            """From now on what autograd has of recipes keeps them, and their arguments."""
            for _, _, weak in self._made.values():
                torch.UntypedStorage._free_weak_ref(weak)
            self._made.clear()
            self._recipes.clear()

        def _forget(self) -> None:
            """The arguments of recipes that nobody has."""
            living = {
                address: [ref for ref in refs if ref() is not None]
                for address, refs in self._inputs.items()
            }
            self._inputs = {address: refs for address, refs in living.items() if refs}

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            idle, name, writes = self._known.get(id(func)) or self._learned(func)
            if self._quiet or idle:
                return func(*args, **kwargs)
            phase = calls.phase
            if phase == "backward":
                return func(*args, **kwargs)
            number = self._planned(name) if phase == "forward" else None
            if number is None and not (writes and (self._made or self._inputs)):
                return func(*args, **kwargs)
            written = calls.written(func, args, kwargs)
            if number is None or not self._within(number, written):
                for one in written:
                    self._before_write(one)
                return func(*args, **kwargs)
            return self._noted(number, func, args, kwargs)

        def _learned(self, func: Any) -> tuple[bool, str, bool]:
            self._operators.append(func)
            known = (calls.makes_nothing(func), name_of(func), calls.writes(func))
            self._known[id(func)] = known
            return known

        def _planned(self, name: str) -> int | None:
            """The group of this call, if it is the next that was planned for."""
            self.begun = True
            at = self._at
            if at == len(self.names) or name != self.names[at]:
                return None
            if at == 0:
                at_first()
            self._at += 1
            return self.groups.get(at)

        def _within(self, number: int, written: Sequence[Any]) -> bool:
            """Return True if this group of calls has given out all of them."""
            found = (self._made.get(one.untyped_storage()._cdata) for one in written)
            recipe = self._recipes.get(number)
            return all(one is not None and one[0] is recipe for one in found)

        def _noted(self, number: int, func: Any, args: Any, kwargs: Any) -> Any:
            recipe = self._recipes.get(number)
            if recipe is None:
                group = orders["groups"][number]
                recipe = self._recipes[number] = _Recipe(len(group["calls"]), group["reads"])
            state = torch.default_generator.get_state() if calls.draws(func) else None
            given = args
            if name_of(func) == _BATCH_NORM and args[5]:
                given = (*args[:3], None, None, *args[5:])
            again = (func, self._kept(given, recipe), self._kept(kwargs, recipe), state)
            result = func(*args, **kwargs)
            recipe.calls.append(again)
            self.given_up += recipe.whole
            had = {one.untyped_storage()._cdata for one in calls.tensors([args, kwargs])}
            for one in calls.tensors(result):
                storage = one.untyped_storage()
                if storage._cdata not in had and storage._cdata not in self._made:
                    slot = len(recipe.dtypes)
                    # an address is not used again as long as there is a weak reference
                    self._made[storage._cdata] = recipe, slot, storage._weak_ref()
                    recipe.dtypes.append(one.dtype)
                    if slot < len(recipe.reads) and recipe.reads[slot]:
                        recipe.values[slot] = one.detach()
            return result

        def _kept(self, value: Any, reader: _Recipe) -> Any:
            """Return a call's argument in a form in which it can be passed again."""
            if isinstance(value, torch.Tensor):
                if found := self._made.get(value.untyped_storage()._cdata):
                    recipe, slot, _ = found
                    if value.dtype == recipe.dtypes[slot]:
                        part = _Part(slot, value)
                        return part if recipe is reader else _Read(recipe, part)
                kept = _Kept(value.detach())
                refs = self._inputs.setdefault(value.untyped_storage()._cdata, [])
                refs.append(weakref.ref(kept))
                return kept
            if isinstance(value, list | tuple):
                return [self._kept(one, reader) for one in value]
            if isinstance(value, dict):
                return {name: self._kept(one, reader) for name, one in value.items()}
            return value

        def _before_write(self, tensor: Any) -> None:
            """Prepare for a write by a call that is not planned for: the value after it is not
            given up, and the value before it is kept for those who read it."""
            if not calls.is_plain(tensor):
                return
            address = tensor.untyped_storage()._cdata
            if found := self._made.pop(address, None):
                recipe, slot, weak = found
                torch.UntypedStorage._free_weak_ref(weak)
                if slot in recipe.values:
                    recipe.values[slot] = recipe.values[slot].clone()
            for ref in self._inputs.pop(address, ()):
                if (kept := ref()) is not None:
                    kept.tensor = kept.tensor.clone()

        def pack(self, tensor: Any) -> Any:
            if self._made and calls.is_plain(tensor):
                found = self._made.get(tensor.untyped_storage()._cdata)
                if found and found[0].whole and tensor.dtype == found[0].dtypes[found[1]]:
                    return _Read(found[0], _Part(found[1], tensor))
            if type(tensor).__torch_dispatch__ is ordinary:
                with below_modes():  # every result that autograd keeps comes here
                    return tensor.detach()
            quiet, self._quiet = self._quiet, True
            try:
                return tensor.detach()
            finally:
                self._quiet = quiet

        def unpack(self, kept: Any) -> Any:
            if not isinstance(kept, _Read):
                return kept
            self._let_go()
            quiet, self._quiet = self._quiet, True
            try:
                with torch._C._AutoDispatchBelowAutograd(), torch.autocast("cpu", enabled=False):
                    return self._value(kept)
            finally:
                self._quiet = quiet

        def _value(self, read: _Read) -> Any:
            """Computed again, unless it is there."""
            recipe, slot = read.recipe, read.part.slot
            if slot not in recipe.values:
                recipe.values.clear()
                found = self._run(recipe)
                recipe.next()
                recipe.values = {
                    at: one for at, one in enumerate(found) if at == slot or recipe.reads[at] > 0
                }
            whole = recipe.values[slot]
            recipe.reads[slot] -= 1
            if recipe.reads[slot] <= 0:
                del recipe.values[slot]
            return read.part.of(whole)

        def _run(self, recipe: _Recipe) -> list[Any]:
            """Return the recipe's results, by slot."""
            slots: list[Any] = []
            for func, args, kwargs, state in recipe.calls:
                given, named = self._given(args, slots), self._given(kwargs, slots)
                had = {one.untyped_storage()._cdata for one in calls.tensors([given, named])}
                if state is not None:
                    own = torch.default_generator.get_state()
                    torch.default_generator.set_state(state)
                try:
                    result = func(*given, **named)
                finally:
                    if state is not None:
                        torch.default_generator.set_state(own)
                for one in calls.tensors(result):
                    address = one.untyped_storage()._cdata
                    if address not in had:
                        had.add(address)
                        slots.append(one)
            return slots

        def _given(self, value: Any, slots: list[Any]) -> Any:
            """Return a call's argument; `slots` are those of the call's recipe."""
            if isinstance(value, _Part):
                return value.of(slots[value.slot])
            if isinstance(value, _Read):
                return self._value(value)
            if isinstance(value, _Kept):
                return value.tensor
            if isinstance(value, list):
                return [self._given(one, slots) for one in value]
            if isinstance(value, dict):
                return {name: self._given(one, slots) for name, one in value.items()}
            return value

    return Recomputing()
