"""Inside the job's Python: models of DistributedDataParallel's get the buckets of a plan, or all
models one size of them.

By DDP's arguments: a limit for each bucket where this PyTorch has that, or one for all.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

# beside this file
from _dltune_torch import at_each_step

if TYPE_CHECKING:
    from _dltune_report import Hooks, Report

Tell = Callable[[dict[str, Any]], Any]
_MIB = 2**20
_ALL, _EACH = "bucket_cap_mb", "bucket_cap_mb_list"
# steps of any optimizer in which a model is asked for its buckets
_PATIENCE = 64


def start(
    orders: Mapping[str, Any], interpreter: Any
) -> tuple[list[tuple[str, Callable[[ModuleType], None]]], dict[str, Any]]:
    """`orders`: of each model its gradients' bytes, sorted, and the limits of its buckets."""

    def begin(torch: Any) -> None:
        if torch.distributed.is_available():
            _Buckets(torch, orders["models"], interpreter.tell).start()

    return [("torch", begin)], {}


def ddp_bucket(report: Report) -> Hooks:
    """Value: "5MiB": what the gradients that travel together have, at the most."""

    def begin(torch: Any) -> None:
        if torch.distributed.is_available():
            _at_each_model(torch, functools.partial(_give_size, report))

    yield "torch", begin


def _give_size(report: Report, given: inspect.BoundArguments) -> None:
    if any(given.arguments.get(name) is not None for name in (_ALL, _EACH)):
        report.left("a model", "the script sets the size of its buckets")
    else:
        given.arguments[_ALL] = int(report.value.removesuffix("MiB"))
        report.did = f"set buckets of {report.value} in {{count}} models"
        report.acted()


def _at_each_model(
    torch: Any, before: Callable[[inspect.BoundArguments], Callable[[], None] | None]
) -> None:
    """Call `before` for each model; it can change the arguments that a model of
    DistributedDataParallel's is made with. Its result is called once the model is there."""
    kind = torch.nn.parallel.DistributedDataParallel
    plain = kind.__init__
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def init(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        after = before(given)
        plain(*given.args, **given.kwargs)
        if after:
            after()

    kind.__init__ = init


class _Buckets:
    def __init__(self, torch: Any, planned: Sequence[Mapping[str, Any]], tell: Tell) -> None:
        self._torch = torch
        self._planned = {tuple(one["gradients"]): one["limits"] for one in planned}
        self._tell = tell
        # models whose buckets are not known yet, with the steps since
        self._unknown: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def start(self) -> None:
        _at_each_model(self._torch, self._order)
        at_each_step(self._torch, after=self._step_ended)

    def _order(self, given: inspect.BoundArguments) -> Callable[[], None] | None:
        sizes: list[int] = []
        with contextlib.suppress(Exception):  # DDP itself reports a model that has no sizes yet
            sizes = _gradients(given.arguments["module"])
        limits = self._planned.get(tuple(sorted(sizes)))
        if limits is None:
            self._say(len(sizes), left="its gradients differ from those of the plan's models")
            return None
        if why := self._why_not(limits, given):
            self._say(len(sizes), left=why)
            return None
        given.arguments.update(_arguments(limits, given.signature))

        def ready() -> None:
            self._say(len(sizes))
            self._unknown[given.arguments["self"]] = 0

        return ready

    def _why_not(self, limits: Sequence[int], given: inspect.BoundArguments) -> str:
        """Why a model is left alone; empty: it gets its buckets."""
        asked = given.arguments
        if asked.get("find_unused_parameters") and not asked.get("static_graph"):
            return (
                "the script sets find_unused_parameters, with which DDP does not rebuild its "
                "buckets"
            )
        if len(limits) > 1 and _EACH not in given.signature.parameters:
            return f"PyTorch {self._torch.__version__} supports only one size for all buckets"
        dynamo = sys.modules.get(f"{self._torch.__name__}._dynamo.config")
        if getattr(dynamo, "optimize_ddp", None) == "python_reducer":
            return "the script reduces its gradients in Python (optimize_ddp)"
        return ""

    def _step_ended(self, *_: Any) -> None:
        """Report the buckets. DDP makes its buckets again before its second step, and says so a
        step later."""
        for model, steps in list(self._unknown.items()):
            told = ""
            with contextlib.suppress(Exception):  # what it says is not PyTorch's to promise
                told = model._get_ddp_logging_data().get("rebuilt_bucket_sizes", "")
            if told:
                buckets = [int(one) for one in told.split(",")]
                self._say(len(_gradients(model.module)), buckets)
            if told or steps == _PATIENCE:
                del self._unknown[model]
            else:
                self._unknown[model] = steps + 1

    def _say(self, gradients: int, buckets: Sequence[int] = (), left: str = "") -> None:
        distributed = self._torch.distributed
        self._tell(
            {
                "type": "buckets",
                "pid": os.getpid(),
                "rank": distributed.get_rank() if distributed.is_initialized() else 0,
                "gradients": gradients,
                "buckets": list(buckets),
                "left": left,
            }
        )


def _arguments(limits: Sequence[int], signature: inspect.Signature) -> dict[str, Any]:
    if len(limits) > 1:
        return {_EACH: [limit / _MIB for limit in limits]}
    other = {_EACH: None} if _EACH in signature.parameters else {}
    return {_ALL: limits[0] / _MIB, **other}


def _gradients(module: Any) -> list[int]:
    """Bytes of those that ranks exchange."""
    ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
    return [
        one.numel() * one.element_size()
        for name, one in module.named_parameters()
        if one.requires_grad and name not in ignored
    ]
