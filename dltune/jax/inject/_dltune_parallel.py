"""Inside the Python of a rank: it joins the others when JAX is imported, and Keras gets the plan's
distribution before any model is built.

Standard library only until the job imports JAX and Keras.
"""

from __future__ import annotations

import atexit
import functools
import os
import random
import sys
import time
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any, NoReturn

# beside this file
from _dltune_distribution import Distribution
from _dltune_layouts import Layouts

Tell = Callable[[dict[str, Any]], Any]
# seconds in which dltune ends a job that it was told a fault of
_ENDING = 2.0
WRONG_USE = 2


def start(
    orders: dict[str, Any], tell: Tell
) -> tuple[
    list[tuple[str, Callable[[ModuleType], None]]], dict[str, Callable[[BaseException], None]]
]:
    """What is to be done after which module's import, and where it cannot be imported. `orders`:
    the `plan`, the `address` of the coordinator, this `rank` of so many `ranks`, its `device` here
    and the `host` at which it is reached, a `seed`, and whether the plan may be met in part
    (`partial`)."""
    rank = _Rank(orders, tell)
    random.seed(orders["seed"])
    hooks = [
        ("numpy", lambda numpy: numpy.random.seed(orders["seed"])),
        ("jax", rank.join),
        ("keras", rank.distribute),
    ]
    return hooks, {"jax": rank.miss}


def _listen_at(host: str) -> None:
    """Gloo meets the others there; by default at the address of the machine's name, if it has
    one."""
    library: Any = sys.modules.get("jaxlib._jax") or sys.modules["jaxlib.xla_extension"]
    library.make_gloo_tcp_collectives = functools.partial(
        library.make_gloo_tcp_collectives, hostname=host
    )


class _Rank:
    def __init__(self, orders: dict[str, Any], tell: Tell) -> None:
        self._orders = orders
        self._tell = tell
        self._layouts = Layouts(orders["plan"])
        self._distribution: Distribution | None = None
        self._jax = ""
        self._code = 0

    def join(self, jax: ModuleType) -> None:
        """Wait for the other ranks, before JAX touches a device."""
        address = self._orders["address"]
        self._jax = jax.__version__
        # what this process starts is no rank
        for name in ("RANK", "RANKS", "LOCAL_RANK", "LOCAL_RANKS"):
            os.environ.pop(f"DLTUNE_{name}", None)
        try:
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
            if "jax_enable_preemption_service" in jax.config.values:
                # it would keep SIGTERM from ending the process; older ones have it always
                jax.config.update("jax_enable_preemption_service", False)
            _listen_at(self._orders["host"])
            jax.distributed.initialize(
                address,
                self._orders["ranks"],
                self._orders["rank"],
                local_device_ids=[self._orders["device"]],
                cluster_detection_method="deactivate",
                coordinator_bind_address=address,
            )
        except Exception as error:
            self._refuse(
                f"rank {self._orders['rank']} cannot join the others with JAX {self._jax}: {error}",
                "the plan is tried with the JAX of `pip install dltune[jax]`",
            )
        self._watch_the_end()
        self._say()

    def miss(self, error: BaseException) -> None:
        """JAX cannot be imported."""
        self._refuse(
            f"the plan is for JAX, which the job's Python cannot import: {error}",
            "install JAX where the job runs: pip install jax",
        )

    def distribute(self, keras: ModuleType) -> None:
        """The plan on Keras' models."""
        if keras.backend.backend() != "jax":
            self._refuse(
                f"the job's Keras runs on {keras.backend.backend()}; the plan is for JAX",
                "set KERAS_BACKEND=jax",
            )
        self._require_mesh()
        keras.utils.set_random_seed(self._orders["seed"])
        self._distribution = Distribution(
            self._layouts, self._refuse, partial=self._orders["partial"]
        )
        try:
            self._distribution.begin()
        except (AttributeError, ImportError, TypeError) as error:
            self._refuse(
                f"the plan cannot be set in Keras {keras.__version__}: {error}",
                "use a Keras that dltune knows, 3.15",
            )
        self._say()

    def _require_mesh(self) -> None:
        import jax

        here, every = jax.local_device_count(), jax.device_count()
        if here != 1 or every != self._orders["ranks"]:
            self._refuse(
                f"the plan is for {self._orders['ranks']} devices, one in each process; the job "
                f"has {every}, {here} of them in this process",
                "leave the number of devices to dltune: unset XLA_FLAGS and JAX_NUM_CPU_DEVICES",
            )

    def _refuse(self, fault: str, remedy: str) -> NoReturn:
        """Have dltune end the job."""
        self._say(fault=fault, remedy=remedy)
        time.sleep(_ENDING)
        os._exit(WRONG_USE)

    def _say(self, **more: Any) -> None:
        told: dict[str, Any] = {
            "type": "parallel",
            "pid": os.getpid(),
            "rank": self._orders["rank"],
            "jax": self._jax,
        }
        if self._distribution is not None:
            weights = self._distribution.weights
            owners = {owner for path in weights for owner in self._layouts.owners(path)}
            told |= {
                "consumer": "keras",
                "weights": len(weights),
                "divided": sum(weights.values()),
                "outputs": len(self._distribution.met),
                "unknown": sorted(self._distribution.unknown),
                "unmet": [one for one in self._layouts.weights if one not in owners],
            }
        elif self._emitted():
            told["consumer"] = "jax"
        self._tell({**told, **more})

    def _emitted(self) -> bool:
        """Whether the job has imported what `--emit` wrote of this plan."""
        plan = self._orders["plan"]
        return any(
            getattr(module, "__dict__", {}).get("DLTUNE_PLAN") == plan
            for module in [*sys.modules.values()]
        )

    def _watch_the_end(self) -> None:
        """A rank that fails ends at once: JAX would wait for the others, who wait for it."""
        owner = os.getpid()
        plain_hook, plain_exit = sys.excepthook, sys.exit

        def excepthook(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            self._code = 1
            plain_hook(kind, error, trace)

        def leave(status: Any = None, /) -> NoReturn:
            self._code = status if isinstance(status, int) else int(status is not None)
            plain_exit(status)

        def ending() -> None:
            if os.getpid() != owner:
                return
            self._say(ended=True)
            if self._code:
                for stream in (sys.stdout, sys.stderr):
                    stream.flush()
                os._exit(self._code & 0xFF)

        sys.excepthook, sys.exit = excepthook, leave
        atexit.register(ending)  # before what JAX has registered
