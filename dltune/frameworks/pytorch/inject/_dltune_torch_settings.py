"""Inside the job's Python: choices that PyTorch leaves to a script, if the script leaves them open.

Actions on the script's modules are done before its second step: the first has shown them.
"""

from __future__ import annotations

import functools
import gc
import importlib
import sys
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

# next to this file
from _dltune_torch import at_each_step

if TYPE_CHECKING:
    from _dltune_report import Hooks, Report

_TORCH = "torch"


def precision(report: Report) -> Hooks:
    """Value: "mixed_bfloat16": products of matrices and convolutions, by autocast."""

    def on_torch(torch: ModuleType) -> None:
        torch.set_autocast_dtype("cpu", torch.bfloat16)
        torch.set_autocast_enabled("cpu", True)
        # it is emptied where the outermost autocast ends, and this one does not
        torch.set_autocast_cache_enabled(False)
        report.did = "autocast to bfloat16 is on"
        report.acted()

    yield _TORCH, on_torch


def float32_precision(report: Report) -> Hooks:
    """Value: "bf16": the type in which oneDNN can multiply float32."""
    report.did = "oneDNN multiplies float32 in bfloat16"

    def on_torch(torch: ModuleType) -> None:
        torch.set_float32_matmul_precision("medium")
        if convolutions := getattr(torch.backends.mkldnn, "conv", None):
            convolutions.fp32_precision = "bf16"
        else:
            report.left(
                "convolutions", "this version of PyTorch supports it only for matrix products"
            )
        report.acted()

    yield _TORCH, on_torch


def denormals(report: Report) -> Hooks:
    """Value: "flushed", in this thread and threads that it starts."""
    report.did = "denormal numbers are flushed to zero"

    def on_torch(torch: ModuleType) -> None:
        if torch.set_flush_denormal(True):
            report.acted()
        else:
            report.left("the CPU", "does not support it")

    yield _TORCH, on_torch


def jit_compile(report: Report) -> Hooks:
    """Value: "on": `torch.compile` of the outermost modules that the first step trains."""
    yield _TORCH, lambda torch: _compile_modules(torch, report)


def _compile_modules(torch: Any, report: Report) -> None:
    called: Any = weakref.WeakValueDictionary()  # modules made in each step can be without end
    plain = torch.compile
    backward, gradients = torch.autograd.backward, torch.autograd.grad
    by_script: list[bool] = []
    twice: list[bool] = []

    def note(module: Any, _: Any) -> None:
        if module.training and torch.is_grad_enabled():
            called.setdefault(id(module), module)

    @functools.wraps(plain)
    def compile(*arguments: Any, **options: Any) -> Any:
        handle.remove()  # or it would be compiled, too
        by_script.append(True)
        return plain(*arguments, **options)

    def looked_at(differentiate: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(differentiate)
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if options.get("create_graph") or True in arguments[3:5]:
                twice.append(True)
            return differentiate(*arguments, **options)

        return wrapped

    handle = torch.nn.modules.module.register_module_forward_pre_hook(note)
    torch.compile = compile
    torch.autograd.backward = looked_at(backward)
    torch.autograd.grad = looked_at(gradients)

    def step_begins() -> None:
        modules = list(called.values())
        called.clear()
        handle.remove()
        torch.compile = plain
        torch.autograd.backward, torch.autograd.grad = backward, gradients
        if by_script:
            report.left("the model", "the script already uses torch.compile")
            return
        if twice:
            report.left(
                "the model",
                "the script computes second derivatives, which torch.compile does not support",
            )
            return
        report.did = "{count} modules are compiled by torch.compile"
        with_parts = [module for module in _outermost(modules) if _is_trained(module)]
        if with_parts:
            _prepare_to_compile(torch)
        for module in with_parts:
            if why := _not_compiled(torch, module):
                report.left(type(module).__name__, why)
            else:
                _compile(torch, module)
                report.acted()

    _at_first_step(torch, step_begins, report)


def _prepare_to_compile(torch: ModuleType) -> None:
    """Raise an error if there is no C++ compiler."""
    importlib.import_module("torch._inductor.cpp_builder").get_cpp_compiler()
    torch._dynamo.config.suppress_errors = True  # code that cannot be compiled runs unchanged
    torch._inductor.config.fallback_random = True  # dropout draws the numbers that it drew
    functorch: Any = importlib.import_module("torch._functorch.config")
    functorch.donated_buffer = False  # a script can go backward twice
    torch._dynamo.config.skip_nnmodule_hook_guards = False  # or add hooks later


def _compile(torch: Any, module: Any) -> None:
    """Compile a module, even if its class overrides `compile`, but not while the script traces
    it."""
    torch.nn.Module.compile(module)
    compiled = module._compiled_call_impl

    def call(*arguments: Any, **options: Any) -> Any:
        tracing = torch._C._get_tracing_state()
        return (module._call_impl if tracing else compiled)(*arguments, **options)

    module._compiled_call_impl = call


def _outermost(modules: list[Any]) -> list[Any]:
    inner = {id(part) for module in modules for part in module.modules() if part is not module}
    return [module for module in modules if id(module) not in inner]


def _is_trained(module: Any) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _not_compiled(torch: ModuleType, module: Any) -> str | None:
    """Return why a module stays as it is; None: it can be compiled."""
    if isinstance(module, torch.jit.ScriptModule):
        return "the script compiles it to TorchScript"
    if type(module).__name__ == "DistributedDataParallel":
        return "DDP exchanges its gradients during the backward pass"
    return None


def channels_last(report: Report) -> Hooks:
    """Value: "on": oneDNN's convolutions in the layout that they are fastest in, without a copy
    into it and out of it at each one."""
    report.did = "{count} convolutions use the channels-last layout"
    yield _TORCH, lambda torch: _ChannelsLast(torch, report).start()


class _ChannelsLast:
    """The weights' layout, which PyTorch's convolutions give their outputs and gradients, too.

    A script can ask for a view that only another layout allows. One that flattens all but the
    batch, as before a linear layer, is given a copy. Any other one is, too, but then all weights
    are put back before the next step: who writes through such a view would write into the copy.

    Random numbers like such an output are drawn in the order of memory, so that they are others.
    """

    def __init__(self, torch: ModuleType, report: Report) -> None:
        self._torch = torch
        self._report = report
        self._formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        self._weights: list[Any] = []
        self._began = self._ended = False

    def start(self) -> None:
        begins = self._report.harmless(self._step_begins, "the model")
        at_each_step(self._torch, before=begins)

    def _step_begins(self, optimizer: Any, *_: Any) -> None:
        if not self._began:
            self._began = True
            self._change_weights()
        elif self._ended:
            for weight in self._weights:
                self._give_layout(weight, self._torch.contiguous_format)
        self._align_state(optimizer)

    def _change_weights(self) -> None:
        distributed = self._torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            self._report.left(
                "the model of several ranks", "gradients must be exchanged in their original layout"
            )
            return
        for name in ("horovod.torch", "mpi4py", "safetensors"):
            if name in sys.modules:
                self._report.left("the model", f"{name} needs contiguous tensors")
                return
        if next(_instances(self._torch.jit.ScriptFunction, self._torch.jit.ScriptModule), None):
            self._report.left("the model", "TorchScript can create views that dltune cannot see")
            return
        weights: dict[int, Any] = {}  # by where they are
        shared: set[int] = set()
        for module in _instances(self._torch.nn.modules.conv._ConvNd):
            weight = module._parameters.get("weight")
            if weight is None:
                self._report.left(
                    type(module).__name__, "its weight is computed from other tensors"
                )
            elif not self._torch.nn.parameter.is_lazy(weight) and weight.dim() in self._formats:
                at = weight.untyped_storage().data_ptr()
                whole = weight.untyped_storage().nbytes() == weight.numel() * weight.element_size()
                others = not whole or weight.is_shared() or self._is_held(weight)
                if weights.setdefault(at, weight) is not weight or others:
                    self._report.left(
                        type(module).__name__, "it shares its weight with another module"
                    )
                    shared.add(at)
        alone = [weight for at, weight in weights.items() if at not in shared]
        self._weights = [weight for weight in alone if weight.is_contiguous()]
        if not self._weights:
            return
        self._watch_views()
        for weight in self._weights:
            self._give_layout(weight, self._formats[weight.dim()])
        self._report.acted(len(self._weights))

    def _is_held(self, weight: Any) -> bool:
        """Return True if something else holds its memory, which would stay as it is, such as
        `p.data`, kept for an average."""
        count: Any = self._torch._C._storage_Use_Count
        alone = self._torch.empty(1).untyped_storage()
        return bool(count(weight.untyped_storage()._cdata) > count(alone._cdata) + 1)

    def _give_layout(self, weight: Any, layout: Any) -> None:
        weight.data = weight.data.contiguous(memory_format=layout)
        if weight.grad is not None:
            weight.grad = weight.grad.contiguous(memory_format=layout)

    def _is_weight(self, tensor: Any) -> bool:
        """Return True for a weight or a script's alias of its data, as a copy would take its
        writes."""
        try:
            return any(tensor.data_ptr() == weight.data_ptr() for weight in self._weights)
        except RuntimeError:  # under vmap tensors are nowhere
            return False

    def _align_state(self, optimizer: Any) -> None:
        """Align state with the weights, as fused optimizers assume: state that was loaded from a
        file, or from which the weights were restored."""
        for weight in self._weights:
            state = optimizer.state.get(weight, {})
            for name, value in state.items():
                if getattr(value, "shape", None) == weight.shape and (
                    value.stride() != weight.stride()
                ):
                    state[name] = self._torch.empty_like(weight, dtype=value.dtype).copy_(value)

    def _watch_views(self) -> None:
        torch = self._torch
        plain, like = torch.Tensor.view, torch.Tensor.view_as

        @functools.wraps(plain)
        def view(tensor: Any, *shape: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling():  # where nothing that is raised can be caught
                to = options or any(isinstance(one, torch.dtype) for one in shape)
                return plain(tensor, *shape, **options) if to else tensor.reshape(*shape)
            try:
                return plain(tensor, *shape, **options)
            except RuntimeError:
                if tensor.is_contiguous():
                    raise
                copy = plain(tensor.contiguous(), *shape, **options)
            if copy.dim() != 2 or len(copy) != len(tensor) or self._is_weight(tensor):
                self._ended = True
                self._report.left(
                    "all convolutions from now on", "the script takes views of outputs"
                )
            return copy

        @functools.wraps(like)
        def view_as(tensor: Any, other: Any) -> Any:
            return view(tensor, other.size())

        torch.Tensor.view, torch.Tensor.view_as = view, view_as


def _instances(*classes: type) -> Iterator[Any]:
    """Return all instances of these classes, by their types, since proxies can imitate another."""
    return (one for one in gc.get_objects() if issubclass(type(one), classes))


def _at_first_step(torch: ModuleType, act: Callable[[], None], report: Report) -> None:
    """Call `act` before the first step, or after it if its passes run within a closure."""
    left = [act]

    def step_begins(_: Any, given: tuple[Any, ...]) -> None:
        if all(one is None for one in given):
            step_ends()

    def step_ends(*_: Any) -> None:
        if left:
            left.pop()()

    acts = {"before": step_begins, "after": step_ends}
    at_each_step(torch, **{name: report.harmless(one, "the model") for name, one in acts.items()})
