"""Inside the Python of a rank: it joins the others when JAX is imported, and Keras gets the plan's
distribution before any model is built.

Standard library only until the job imports JAX and Keras.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

# in this folder, and shared by frameworks
from _dltune_distribution import Distribution
from _dltune_layouts import Layouts
from _dltune_rank import Rank, Tell


def start(
    orders: dict[str, Any], interpreter: Any
) -> tuple[
    list[tuple[str, Callable[[ModuleType], None]]], dict[str, Callable[[BaseException], None]]
]:
    """Return the functions to call after the import of each module, and where it cannot be
    imported."""
    parallel = _Parallel(orders, interpreter.tell)
    hooks = [
        ("numpy", lambda numpy: numpy.random.seed(orders["seed"])),
        ("jax", parallel.join),
        ("keras", parallel.distribute),
    ]
    return hooks, {"jax": parallel.miss}


def _listen_at(host: str) -> None:
    """Gloo meets the others there; by default at the address of the machine's name, if it has
    one."""
    library: Any = sys.modules.get("jaxlib._jax") or sys.modules["jaxlib.xla_extension"]
    library.make_gloo_tcp_collectives = functools.partial(
        library.make_gloo_tcp_collectives, hostname=host
    )


class _Parallel:
    def __init__(self, orders: dict[str, Any], tell: Tell) -> None:
        self._orders = orders
        self._layouts = Layouts(orders["plan"])
        self._distribution: Distribution | None = None
        self._rank = Rank(orders, tell, self._taken)

    def join(self, jax: ModuleType) -> None:
        """Wait for the other ranks, before JAX touches a device."""
        address = self._orders["address"]
        self._rank.joins(f"JAX {jax.__version__}")
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
            self._rank.refuse(
                f"rank {self._orders['rank']} cannot connect to the others with JAX "
                f"{jax.__version__}: {error}",
                "use the version of JAX that dltune is tested with: pip install 'dltune[jax]'",
            )
        self._rank.watch_the_end()
        self._rank.say()

    def miss(self, error: BaseException) -> None:
        """JAX cannot be imported."""
        if "torch" in sys.modules:
            return  # which takes plans, too
        self._rank.refuse(
            f"the plan requires JAX, which the job's Python cannot import: {error}",
            "install JAX in the job's environment: pip install jax",
        )

    def distribute(self, keras: ModuleType) -> None:
        """The plan on Keras' models."""
        if keras.backend.backend() != "jax":
            self._rank.refuse(
                f"Keras uses the backend {keras.backend.backend()!r}, but the plan requires JAX",
                "set KERAS_BACKEND=jax",
            )
        self._require_mesh()
        keras.utils.set_random_seed(self._orders["seed"])
        self._distribution = Distribution(
            self._layouts, self._rank.refuse, partial=self._orders["partial"]
        )
        try:
            self._distribution.begin()
        except (AttributeError, ImportError, TypeError) as error:
            self._rank.refuse(
                f"the plan cannot be applied in Keras {keras.__version__}: {error}",
                "use Keras 3.15, which dltune supports",
            )
        self._rank.say()

    def _require_mesh(self) -> None:
        import jax

        here, every = jax.local_device_count(), jax.device_count()
        if here != 1 or every != self._orders["ranks"]:
            self._rank.refuse(
                f"the plan requires {self._orders['ranks']} devices, one per process; the job "
                f"has {every}, of which {here} in this process",
                "unset XLA_FLAGS and JAX_NUM_CPU_DEVICES: dltune sets the number of devices",
            )

    def _taken(self) -> dict[str, Any]:
        if self._distribution is not None:
            return {"consumer": "keras", **self._distribution.taken()}
        return {"consumer": "jax"} if self._emitted() else {}

    def _emitted(self) -> bool:
        """True if the job has imported the file that `--emit` wrote of this plan."""
        plan = self._orders["plan"]
        return any(
            getattr(module, "__dict__", {}).get("DLTUNE_PLAN") == plan
            for module in [*sys.modules.values()]
        )
