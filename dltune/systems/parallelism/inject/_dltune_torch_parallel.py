"""Inside the Python of a rank: it joins the others when a model of PyTorch's that the plan knows is
called first, and that model is divided as planned.

Standard library only until the job imports PyTorch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

# in this folder, and shared by frameworks
from _dltune_layouts import Layouts
from _dltune_rank import Rank, Tell
from _dltune_torch_distribution import Distribution

_UNKNOWN_OP = re.compile(r"Operator ([\w.]+) does not have a sharding strategy")


def start(
    orders: dict[str, Any], interpreter: Any
) -> tuple[list[tuple[str, Callable[[ModuleType], None]]], dict[str, Any]]:
    """Return the functions to call after the import of each module."""
    parallel = _Parallel(orders, interpreter.tell)
    hooks = [
        ("numpy", lambda numpy: numpy.random.seed(orders["seed"])),
        ("torch", parallel.begin),
    ]
    return hooks, {}


class _Parallel:
    def __init__(self, orders: dict[str, Any], tell: Tell) -> None:
        self._orders = orders
        self._torch: Any = None
        self._rank = Rank(orders, tell, self._taken)
        self._distribution = Distribution(
            Layouts(orders["plan"], nested=True), self._rank.refuse, partial=orders["partial"]
        )

    def begin(self, torch: Any) -> None:
        self._torch = torch
        torch.manual_seed(self._orders["seed"])
        self._distribution.begin(torch, join=self._join, divided=self._rank.say)

    def _join(self) -> None:
        """Wait for the other ranks: the script has made its first model, from numbers that all
        draw alike."""
        torch, orders = self._torch, self._orders
        version = torch.__version__
        self._rank.joins(f"PyTorch {version}")
        distributed = torch.distributed
        if not distributed.is_available() or distributed.is_initialized():
            self._rank.refuse(
                "the job already starts ranks with torch.distributed"
                if distributed.is_available()
                else f"PyTorch {version} was built without torch.distributed",
                "use a script that trains in one process, and a PyTorch with torch.distributed",
            )
        if orders["interface"]:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", orders["interface"])
        try:
            distributed.init_process_group(
                "gloo",
                init_method=f"tcp://{orders['address']}",
                rank=orders["rank"],
                world_size=orders["ranks"],
            )
        except Exception as error:
            self._rank.refuse(
                f"rank {orders['rank']} cannot connect to the other ranks with PyTorch {version}: "
                f"{error}",
                "check that the plan names the hosts on which the job runs",
            )
        self._rank.watch_the_end(self._explain)
        self._rank.say()

    def _explain(self, error: BaseException) -> None:
        """End the job, in a sentence, on an op that cannot be computed on parts."""
        if found := _UNKNOWN_OP.search(str(error)):
            self._rank.refuse(
                f"PyTorch {self._torch.__version__} cannot compute {found[1]} on divided tensors",
                "try a newer PyTorch; plans for parallelism are tested with PyTorch 2.13",
            )

    def _taken(self) -> dict[str, Any]:
        if not self._distribution.met:
            return {}
        return {"consumer": "torch", **self._distribution.taken()}
