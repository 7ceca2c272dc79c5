"""Inside the job's Python: PyTorch's models are trained as a plan divides them.

A model's weights become DTensors when it is called first, by whatever holds them. It is given whole
batches and gives out whole results, so that the script around it computes as ever; within it each
process has its part.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import gc
import inspect
import logging
import os
import sys
import types
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

# beside this file, and shared by frameworks
from _dltune_layouts import Layouts, Refuse, require_known
from _dltune_torch_kinds import kind_of
from _dltune_torch_layers import PARAMETER, REPLAN, Layers, all_gathered, gathered, is_divided
from _dltune_torch_random import draw_alike, fill_alike

# calls of a model after which the ranks compare what they were given
_COMPARED = 64
# what reads numbers of a tensor
_READERS = (
    "item",
    "tolist",
    "numpy",
    "__float__",
    "__int__",
    "__bool__",
    "__array__",
    "__format__",
)


class Distribution:
    """A plan on the models of this process. `weights`: of these models, by path, whether each is
    divided; `unknown`: weights that are no operator's, where `partial` leaves them whole."""

    def __init__(self, layouts: Layouts, refuse: Refuse, *, partial: bool = False) -> None:
        self.weights: dict[str, bool] = {}
        self.unknown: set[str] = set()
        self._layouts = layouts
        self._layers = Layers(layouts, refuse)
        self._refuse = refuse
        self._partial = partial
        self._known: Any = weakref.WeakSet()  # models, and what is within them
        self._optimizers: Any = weakref.WeakSet()  # whose states are divided
        self._within = False
        self._calls = 0

    @property
    def met(self) -> bool:
        """Whether a model has been divided."""
        return len(self._known) > 0

    def taken(self) -> dict[str, Any]:
        """As `messages.Parallel` has it."""
        told: dict[str, Any] = self._layouts.taken(self.weights, self._layers.met, self.unknown)
        return told

    def __deepcopy__(self, _: Any) -> Distribution:
        """Of a model whose layers refer to it."""
        return self

    def begin(
        self,
        torch: Any,
        join: Callable[[], None] = lambda: None,
        divided: Callable[[], None] = lambda: None,
    ) -> None:
        """In force from now on. `join`: called before the first model is divided, and `divided`
        after each."""
        self.torch = torch
        self._join, self._divided = join, divided
        self._pid = os.getpid()
        plain = torch.nn.Module.__call__

        @functools.wraps(plain)
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._within and module not in self._known and self._trains(module):
                self._meet(module)
            return plain(module, *args, **kwargs)

        torch.nn.Module.__call__ = call
        torch.nn.Module._dltune_plan = self._layouts.plan
        self._layers.begin(torch)
        draw_alike(torch, self._layers)
        torch.backends.mha.set_fastpath_enabled(False)  # one op that nothing can divide
        self._hook_saving()

    # -- a model that is met for the first time

    def _trains(self, module: Any) -> bool:
        """Whether a model is called to be trained, here and now. One that is only evaluated, as an
        average of weights is, stays whole; and what a script's classes make of weights is none."""
        torch = self.torch
        return (
            torch.is_grad_enabled()
            and not torch.compiler.is_compiling()
            and os.getpid() == self._pid  # workers of a DataLoader are no ranks
            and not module.__class__.__module__.startswith("torch.nn.utils")
        )

    def _meet(self, model: Any) -> None:
        weights = dict(model.named_parameters())
        if not any(one.requires_grad for one in weights.values()):
            return  # such as a loss
        lazy = self.torch.nn.parameter.UninitializedParameter
        if any(isinstance(one, lazy) for one in weights.values()):
            return  # what has no shape yet gets one by being called plainly
        if all(is_divided(one) for one in weights.values()):  # a copy of one that is known
            self._known.update(model.modules())
            return
        if type(model).__name__ == "OptimizedModule":
            self._refuse(
                "the script compiles its model with torch.compile, and a compiled model cannot "
                "be divided",
                "run the script without torch.compile",
            )
        if self._layers.mesh is None:
            self._join()
            self._start()
        self._require_known(model)
        whole = [one for one in weights.values() if not is_divided(one)]
        self._require_alike(
            whole,
            "initialise different weights",
            "seed the random numbers before the model is created, for example with "
            "torch.manual_seed(0)",
        )
        self._divide(model)
        self._divided()

    def _start(self) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor

        layouts = self._layouts
        self._layers.mesh = init_device_mesh("cpu", layouts.mesh, mesh_dim_names=layouts.axes)
        # gloo has no all-to-all for what is divided anew, and is not to say so at each
        logging.getLogger("torch.distributed.tensor._collective_utils").setLevel(logging.ERROR)
        # what a model makes by itself, as masks and positions, is the same in every process
        DTensor._op_dispatcher._allow_implicit_replication = True
        fill_alike(self._layers, DTensor)
        for name in ("view", "reshape", "unflatten"):
            setattr(DTensor, name, self._with_whole_features(getattr(DTensor, name)))
        for name in _READERS:
            setattr(DTensor, name, _of_all(getattr(DTensor, name)))
        DTensor.data = _data(self.torch)
        DTensor.__torch_function__ = classmethod(_into_whole(self.torch))

    def _with_whole_features(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """A new shape that cuts across the parts is given to what is divided by samples alone."""
        from torch.distributed.tensor import Replicate

        @functools.wraps(plain)
        def shaped(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return plain(tensor, *args, **kwargs)
            except RuntimeError:
                placements = [one if one.is_shard(0) else Replicate() for one in tensor.placements]
                if placements == list(tensor.placements):
                    raise
                return plain(tensor.redistribute(placements=placements), *args, **kwargs)

        return shaped

    def _require_known(self, model: Any) -> None:
        """Every weight of a model that is about to run is one operator's, or one that a module of
        the script's holds beside its layers: such are left whole."""
        modules = dict(model.named_modules())
        unknown = []
        for name, _ in model.named_parameters():
            path = _path(name)
            try:
                if self._layouts.owner(path) is not None:
                    continue
            except ValueError as error:
                self._refuse(str(error), REPLAN)
            holder = modules[name.rpartition(".")[0]]
            beside_layers = any(holder.children()) and not kind_of(self.torch, holder)
            if beside_layers:
                self.unknown.add(path)
            else:
                unknown.append(path)
        if not self._partial:
            require_known(unknown, self._refuse)
        self.unknown.update(unknown)

    def _require_alike(self, tensors: Any, fault: str, remedy: str) -> None:
        """All ranks have the same."""
        torch = self.torch
        crc = 0
        for one in tensors:
            whole = one.detach().contiguous().view(-1)
            crc = zlib.crc32(whole.view(torch.uint8).numpy() if whole.numel() else b"", crc)
        if any(one != crc for one in self._sums(crc)):
            self._refuse(f"the ranks {fault}", remedy)

    def _sums(self, own: int) -> list[int]:
        """Of every rank."""
        torch = self.torch
        mine = torch.tensor([own])
        every = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(every, mine)
        return [int(one) for one in every]

    def _divide(self, model: Any) -> None:
        swapped: dict[int, tuple[Any, Any]] = {}  # by the old one's address
        for name, module in model.named_modules():
            if module in self._known:
                continue
            self._known.add(module)
            path = _path(name)
            kind = kind_of(self.torch, module)
            for leaf, weight in [*module._parameters.items()]:
                if weight is None or is_divided(weight):
                    continue  # a layer that another model has, too
                placements = self._weight(path, leaf, kind, weight)
                if id(weight) in swapped:
                    if list(swapped[id(weight)][1].placements) != placements:
                        self._refuse(
                            f"{path!r} shares its weights with a layer that the plan divides "
                            "differently",
                            REPLAN,
                        )
                else:
                    if (where := f"{path}/{leaf}") not in self.unknown:
                        self.weights[where] = any(one.is_shard() for one in placements)
                    swapped[id(weight)] = weight, self._parted(weight, placements)
            for leaf, buffer in module._buffers.items():
                if is_divided(buffer):
                    continue
                if buffer is not None and leaf in PARAMETER.get(kind, {}):
                    part = self._parted(buffer, self._weight(path, leaf, kind, buffer))
                    module._buffers[leaf] = part
            self._layers.divide(module, path, kind)
        self._swap(model, swapped)
        self._swap_locals(swapped)
        whole: Any = functools.partial(self._whole, model.forward)
        whole.__signature__ = inspect.signature(model.forward)  # by which scripts give arguments
        model.forward = whole

    def _weight(self, path: str, leaf: str, kind: str, weight: Any) -> Any:
        """How a weight is placed."""
        at = PARAMETER.get(kind, {}).get(leaf)
        rest = [size for place, size in enumerate(weight.shape) if place != at]
        where = f"{path}/{leaf}"
        if not self._layouts.owners(where):
            return self._layers.placed(())
        if at is None:
            if self._layouts.learns_in_parts(where):
                self._refuse(
                    f"the plan divides the weights of {path!r}, but PyTorch cannot divide those "
                    f"of a {kind or 'module'}",
                    REPLAN,
                )
            return self._layers.placed(())
        try:
            entries = self._layouts.weight(where, (*rest, weight.shape[at]))
        except ValueError as error:
            self._refuse(str(error), REPLAN)
        return self._layers.placed([*[None] * at, entries[-1]])

    def _parted(self, weight: Any, placements: list[Any]) -> Any:
        """This process's part of what all have."""
        from torch.distributed.tensor import DTensor

        with self.torch.no_grad():
            whole = self._layers.as_whole(weight.detach())
            local = whole.redistribute(placements=placements).to_local().clone()
            part = DTensor.from_local(
                local,
                self._layers.mesh,
                placements,
                run_check=False,
                shape=weight.shape,
                stride=weight.stride(),
            )
        if isinstance(weight, self.torch.nn.Parameter):
            part = self.torch.nn.Parameter(part, requires_grad=weight.requires_grad)
            if part.requires_grad:
                part.register_post_accumulate_grad_hook(_add_up)
        if weight.grad is not None:
            part.grad = self._parted(weight.grad, placements)
        return part

    def _swap(self, model: Any, swapped: dict[int, tuple[Any, Any]]) -> None:
        """Whatever holds a weight holds its part from now on: modules, optimizers, lists of the
        script's."""
        parts = {old: new for old, (_, new) in swapped.items()}
        own = {*map(id, swapped.values())}
        for old, _ in swapped.values():
            hooks = (old._backward_hooks, getattr(old, "_post_accumulate_grad_hooks", None))
            if any(hooks):
                self._refuse(
                    "the script registers hooks on its weights, and weights with hooks cannot be "
                    "divided",
                    "run the script without these hooks",
                )
        for module in model.modules():
            for leaf, weight in [*module._parameters.items()]:
                if id(weight) in parts:
                    setattr(module, leaf, parts[id(weight)])
        for holder in gc.get_referrers(*(old for old, _ in swapped.values())):
            if id(holder) in own:
                continue
            if isinstance(holder, tuple | frozenset):
                self._refuse(
                    f"the script keeps its weights in a {type(holder).__name__}, where dltune "
                    "cannot replace them",
                    "keep the weights in a list, such as list(model.parameters())",
                )
            _hold(holder, parts)

    def _swap_locals(self, swapped: dict[int, tuple[Any, Any]]) -> None:
        """Functions of the script's that run hold weights by name."""
        frame: Any = sys._getframe(3)
        to_fast = getattr(ctypes.pythonapi, "PyFrame_LocalsToFast", None)
        while frame is not None:
            names = frame.f_locals
            held = [name for name, one in names.items() if id(one) in swapped]
            for name in held:
                names[name] = swapped[id(names[name])][1]
            if held and to_fast and names is not frame.f_globals:
                to_fast(ctypes.py_object(frame), ctypes.c_int(0))
            frame = frame.f_back

    # -- what is called

    def _whole(self, forward: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """A model's result for whole tensors, whole."""
        if self._within:
            return forward(*args, **kwargs)
        torch = self.torch
        from torch.distributed.tensor import DTensor
        from torch.utils._pytree import tree_flatten, tree_map

        given = [
            one
            for one in tree_flatten((args, kwargs))[0]
            if isinstance(one, torch.Tensor) and not isinstance(one, DTensor)
        ]
        if self._calls % _COMPARED == 0:
            self._require_alike(
                given,
                "read different batches: the job draws or shuffles its data differently in each "
                "process",
                "seed the random numbers, for example with torch.manual_seed(0) or "
                "numpy.random.default_rng(0)",
            )
        self._calls += 1
        tensors = {id(one) for one in given}
        args, kwargs = tree_map(
            lambda one: self._layers.as_whole(one) if id(one) in tensors else one, (args, kwargs)
        )
        self._within = True
        try:
            found = forward(*args, **kwargs)
        finally:
            self._within = False
        return tree_map(lambda one: _given(one) if is_divided(one) else one, found)

    # -- what is kept

    def _hook_saving(self) -> None:
        """What is saved is whole, and written by one process; what is loaded is divided."""
        torch = self.torch
        optim = torch.optim.Optimizer
        states, optimizer_states = torch.nn.Module.state_dict, optim.state_dict
        load_optimizer, save = optim.load_state_dict, torch.save

        @functools.wraps(states)
        def state_dict(module: Any, *args: Any, **kwargs: Any) -> Any:
            found = states(module, *args, **kwargs)
            if self._layers.mesh is not None and not args and kwargs.get("destination") is None:
                for name, one in found.items():
                    if is_divided(one):
                        found[name] = gathered(one.detach())
            return found

        @functools.wraps(optimizer_states)
        def optimizer_state_dict(optimizer: Any) -> Any:
            return all_gathered(optimizer_states(optimizer))

        @functools.wraps(load_optimizer)
        def load_state_dict(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            load_optimizer(optimizer, *args, **kwargs)
            self._optimizers.discard(optimizer)

        @functools.wraps(save)
        def save_by_one(obj: Any, *args: Any, **kwargs: Any) -> None:
            if self._layers.mesh is None:
                save(obj, *args, **kwargs)
                return
            if isinstance(obj, torch.nn.Module) and obj in self._known:
                self._refuse(
                    "the script saves the model object, but each process has only a part of the "
                    "model",
                    "save the model's state_dict()",
                )
            obj = all_gathered(obj)
            to: Any = args[0] if args else kwargs.get("f")
            file = isinstance(to, str | os.PathLike)
            own = not (file and self._is_first_s(str(Path(to).resolve())))
            if own or torch.distributed.get_rank() == 0:
                save(obj, *args, **kwargs)
            torch.distributed.barrier()  # who reads it next finds it whole

        torch.nn.Module.state_dict = state_dict
        optim.state_dict, optim.load_state_dict = optimizer_state_dict, load_state_dict
        torch.save = save_by_one
        # `torch.optim` has no attribute of that name
        sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(
            lambda optimizer, *_: self._divide_states(optimizer)
        )

    def _is_first_s(self, path: str) -> bool:
        """Whether rank 0 writes that file."""
        return self._sums(zlib.crc32(path.encode()))[0] == zlib.crc32(path.encode())

    def _divide_states(self, optimizer: Any) -> None:
        """What an optimizer has of a weight, such as from a file, is divided as that is."""
        if self._layers.mesh is None or optimizer in self._optimizers:
            return
        self._optimizers.add(optimizer)
        for weight, state in optimizer.state.items():
            if not is_divided(weight):
                continue
            for name, one in state.items():
                plain = isinstance(one, self.torch.Tensor) and not is_divided(one)
                if plain and one.ndim and one.shape == weight.shape:
                    state[name] = self._parted(one, list(weight.placements))


def _path(name: str) -> str:
    """Of a module or a weight, as plans have them."""
    return name.replace(".", "/")


def _hold(holder: Any, parts: dict[int, Any]) -> None:
    """Has a container, a closure or an object hold the parts of weights, by the weights'
    addresses."""
    if isinstance(holder, list | collections.deque):
        for place, one in enumerate(holder):
            if id(one) in parts:
                holder[place] = parts[id(one)]
    elif isinstance(holder, dict):
        for key, one in [*holder.items()]:
            if id(one) in parts:
                holder[key] = parts[id(one)]
            if id(key) in parts:
                holder[parts[id(key)]] = holder.pop(key)
    elif isinstance(holder, set):
        for one in [one for one in holder if id(one) in parts]:
            holder.remove(one)
            holder.add(parts[id(one)])
    elif isinstance(holder, types.CellType):
        holder.cell_contents = parts[id(holder.cell_contents)]
    else:
        for slot in [one for kind in type(holder).__mro__ for one in vars(kind).values()]:
            if isinstance(slot, types.MemberDescriptorType):  # of `__slots__`
                with contextlib.suppress(AttributeError, TypeError):  # empty, or read only
                    if (part := parts.get(id(slot.__get__(holder)))) is not None:
                        slot.__set__(holder, part)
        if isinstance(getattr(holder, "__dict__", None), dict):
            _hold(vars(holder), parts)


def _add_up(weight: Any) -> None:
    """What DTensor leaves to be added up of a gradient is, before anything reads it."""
    if weight.grad.placements != weight.placements:
        weight.grad = weight.grad.redistribute(placements=weight.placements)


def _data(torch: Any) -> property:
    """The numbers of a tensor, which a script may give others."""
    plain = torch.Tensor.data

    def write(tensor: Any, numbers: Any) -> None:
        with torch.no_grad():
            plain.__get__(tensor).copy_(numbers)

    return property(plain.__get__, write)


def _into_whole(torch: Any) -> Callable[..., Any]:
    """What a script writes into a tensor of its own, such as a buffer or an average of weights, is
    whole."""

    def call(_: Any, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        writes = name == "__setitem__" or name.startswith("__i") or name[-1:] == "_" != name[:1]
        if writes and args and isinstance(args[0], torch.Tensor) and not is_divided(args[0]):
            args, kwargs = all_gathered((args, kwargs))
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **kwargs)

    return call


def _given(tensor: Any) -> Any:
    """To the script, which may write to it, and compute a loss of it and of weights."""
    found = gathered(tensor).clone()
    if found.requires_grad:
        found.register_hook(lambda one: gathered(one) if is_divided(one) else None)
    return found


def _of_all(plain: Callable[..., Any]) -> Callable[..., Any]:
    """What a script reads of a tensor is of the whole: PyTorch 2.6 gives the part."""

    @functools.wraps(plain)
    def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(gathered(tensor), plain.__name__)(*args, **kwargs)

    return read
