"""Inside the job's Python: optimizers of PyTorch's that update all their tensors by one op.

On CPUs these have been there since PyTorch 2.4, and a script has to ask for them. The state
that a script saves must show its own choice: a group has them only while it steps.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

# next to this file
from _dltune_torch import at_each_step, release

if TYPE_CHECKING:
    from _dltune_report import Hooks, Report

OLDEST = (2, 4)  # with it on CPUs
NAMES = ("SGD", "Adam", "AdamW", "Adagrad")
OTHERWISE = "gradients or state have a different memory layout than the parameters"


def fused_optimizer(report: Report) -> Hooks:
    """Value: "on"."""
    report.did = "{count} parameter groups are updated by one fused op each"
    yield "torch", lambda torch: _Fused(torch, report).start()


class _Fused:
    def __init__(self, torch: ModuleType, report: Report) -> None:
        self._torch: Any = torch
        self._report = report
        self._dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
        self._stepping: list[Any] = []  # groups
        # by optimizer: the number of tensors in its groups, and which groups can be fused
        self._fit: Any = weakref.WeakKeyDictionary()
        # by optimizer: its state when checked, and whether the state's layout is its tensors'
        self._even: Any = weakref.WeakKeyDictionary()
        self._stepped: Any = weakref.WeakSet()
        self._looked_after: Any = weakref.WeakSet()
        self._sparse: Any = weakref.WeakSet()

    def start(self) -> None:
        if release(self._torch) < OLDEST:
            version = self._torch.__version__
            self._report.left("the optimizers", f"PyTorch {version} has no fused op on CPUs")
            return
        begins, ends = (
            self._report.harmless(act, "the optimizers") for act in (self._begins, self._ends)
        )
        at_each_step(self._torch, before=begins, after=ends)

    def _begins(self, optimizer: Any, given: tuple[Any, ...]) -> None:
        closure = any(one is not None for one in given)
        if (closure and optimizer not in self._stepped) or not self._is_known(optimizer):
            return  # passes within the first step show which gradients there are
        if optimizer not in self._looked_after:
            self._looked_after.add(optimizer)
            # a step that fails leaves them as it had them, and the script may save them then
            optimizer.register_state_dict_pre_hook(lambda one: self._undo(one.param_groups))
        self._undo(optimizer.param_groups)
        if optimizer in self._sparse or self._is_sparse(optimizer):
            self._report.left(type(optimizer).__name__, "it has sparse gradients")
            return
        groups = optimizer.param_groups
        sizes = tuple(len(group["params"]) for group in groups)
        if self._fit.get(optimizer, (None,))[0] != sizes:
            self._fit[optimizer] = sizes, tuple(map(self._is_fit, groups))
        fits = self._fit[optimizer][1]
        fitting = [group for group, fit in zip(groups, fits, strict=True) if fit]
        if not self._is_state_even(optimizer, fitting):
            self._report.left(type(optimizer).__name__, OTHERWISE)
            return
        for group in fitting:
            asked = group.get("fused") is not None or group.get("foreach") is not None
            if not asked and self._is_even(group, optimizer.state, closure):
                group["fused"] = True
                self._stepping.append(group)

    def _undo(self, groups: list[Any]) -> None:
        for group in [one for one in self._stepping if any(one is own for own in groups)]:
            group["fused"] = None
        self._stepping = [one for one in self._stepping if one["fused"]]

    def _ends(self, optimizer: Any, _: tuple[Any, ...]) -> None:
        self._undo(optimizer.param_groups)
        if optimizer not in self._stepped:
            self._stepped.add(optimizer)
            if self._is_sparse(optimizer):
                self._sparse.add(optimizer)

    def _is_known(self, optimizer: Any) -> bool:
        known = any(type(optimizer) is getattr(self._torch.optim, name) for name in NAMES)
        if not known:
            self._report.left(type(optimizer).__name__, f"only {', '.join(NAMES)} have a fused op")
        return known

    def _is_fit(self, group: dict[str, Any]) -> bool:
        if why := next(self._hindrances(group), None):
            self._report.left("a group", why)
            return False
        self._report.acted()
        return True

    def _hindrances(self, group: dict[str, Any]) -> Iterator[str]:
        torch = self._torch
        if group.get("fused") is not None or group.get("foreach") is not None:
            yield "the script sets fused or foreach itself"
        if group.get("differentiable") or group.get("capturable"):
            yield "the script sets differentiable or capturable"
        if isinstance(group.get("lr"), torch.Tensor):
            yield "its learning rate is a tensor"
        plain = (torch.Tensor, torch.nn.Parameter)
        for one in group["params"]:
            if type(one) not in plain or one.device.type != "cpu" or one.layout != torch.strided:
                yield "its tensors are not plain CPU tensors"
            elif one.dtype not in self._dtypes:
                yield f"its tensors have the type {one.dtype}"
            elif not _is_dense(one):
                yield "a tensor is a view of another tensor"

    def _is_even(self, group: dict[str, Any], state: Any, closure: bool) -> bool:
        """Return True if the op can update the group in this step: it walks tensors and gradients
        by address, and makes momentum for all or none. A closure can give gradients to tensors that
        have none."""
        momentum, begun = bool(group.get("momentum")), set()
        for one in group["params"]:
            grad = one.grad
            if grad is None and not closure:
                continue
            if grad is not None and grad.stride() != one.stride() and not _is_alike(one, grad):
                self._report.left("a group", OTHERWISE)
                return False
            if momentum:
                begun.add((state.get(one) or {}).get("momentum_buffer") is not None)
        return len(begun) < 2

    def _is_state_even(self, optimizer: Any, groups: list[dict[str, Any]]) -> bool:
        """Return True if these groups' state has their layout. Checked when state was loaded or
        grew."""
        state = optimizer.state
        seen, even = self._even.get(optimizer, (None, True))
        if seen != (id(state), len(state)):
            even = all(
                _is_alike(one, other)
                for group in groups
                for one in group["params"]
                for other in (state.get(one) or {}).values()
                if isinstance(other, self._torch.Tensor)
            )
            self._even[optimizer] = (id(state), len(state)), even
        return bool(even)

    def _is_sparse(self, optimizer: Any) -> bool:
        return any(
            one.grad is not None and one.grad.layout != self._torch.strided
            for group in optimizer.param_groups
            for one in group["params"]
        )


def _is_dense(one: Any) -> bool:
    """Return True if its elements fill the memory from the first to the last."""
    expected = 1
    for stride, size in sorted(zip(one.stride(), one.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _is_alike(one: Any, other: Any) -> bool:
    """Return True if elements of the same shape have the same places."""
    if other.shape != one.shape or other.stride() == one.stride():
        return True
    strides = zip(one.stride(), other.stride(), one.shape, strict=True)
    return all(size <= 1 or mine == its for mine, its, size in strides)
