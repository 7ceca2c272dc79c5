"""One rank of bench_strategies.py.

    python strategies_rank.py ADDRESS RANK RANKS NETWORK FOLDER

It trains a network in plain JAX with what `--emit jax` writes: FOLDER has a file of it for every
strategy. It reads lines from stdin, {"strategy", "steps", "anew"} as JSON, or {"links"}, and
answers each with one: seconds and losses of these steps, from the first weights on where `anew`.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dltune.systems.parallelism.jax import links

RATE = 0.02
_SIZES = {"f32": 4, "s32": 4, "pred": 1, "u32": 4}
_COLLECTIVE = re.compile(
    r"= (.*?) (all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute)(?:-start)?\("
)


class Plan(Protocol):
    """Of what `--emit jax` writes, what models use."""

    def read(self, name: str, array: Any) -> Any: ...
    def constrain(self, name: str, array: Any) -> Any: ...


class _Alone:
    def read(self, _: str, array: Any) -> Any:
        return array

    constrain = read


def convolutional(params: Any, x: Any, plan: Plan) -> Any:
    for number in "123":
        conv, pool = f"conv{number}", f"pool{number}"
        x = jax.lax.conv_general_dilated(
            *(plan.read(conv, x), params[conv]["kernel"], (1, 1), "SAME"),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        x = plan.constrain(conv, jax.nn.relu(x + params[conv]["bias"]))
        x, window = plan.read(pool, x), (1, 2, 2, 1)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
        x = plan.constrain(pool, x)
    x = x.reshape(x.shape[0], -1)
    for name in ("dense1", "dense2"):
        x = plan.constrain(name, jax.nn.relu(_dense(plan, params, x, name)))
    return plan.read("loss", plan.constrain("classes", _dense(plan, params, x, "classes")))


def points(params: Any, x: Any, plan: Plan) -> Any:
    for name in ("narrow1", "narrow2", "narrow3"):
        x = plan.constrain(name, jax.nn.relu(_dense(plan, params, x, name)))
    x = plan.constrain("mean", plan.read("mean", x).mean(1))
    for name in ("wide1", "wide2", "wide3"):
        x = plan.constrain(name, jax.nn.relu(_dense(plan, params, x, name)))
    return plan.read("loss", plan.constrain("classes", _dense(plan, params, x, "classes")))


def residual(params: Any, x: Any, plan: Plan) -> Any:
    x = plan.constrain("embedding", params["embedding"]["embeddings"][x])
    for block in "12":
        wide, narrow, add = (f"{name}{block}" for name in ("wide", "narrow", "add"))
        h = plan.constrain(wide, jax.nn.relu(_dense(plan, params, x, wide)))
        h = plan.constrain(narrow, _dense(plan, params, h, narrow))
        x = plan.constrain(add, plan.read(add, x) + plan.read(add, h))
    x = plan.constrain("mean", plan.read("mean", x).mean(1))
    x = plan.constrain("hidden", jax.nn.relu(_dense(plan, params, x, "hidden")))
    return plan.read("loss", plan.constrain("classes", _dense(plan, params, x, "classes")))


def _dense(plan: Plan, params: Any, x: Any, name: str) -> Any:
    return plan.read(name, x) @ params[name]["kernel"] + params[name]["bias"]


@dataclass(frozen=True)
class Network:
    """`weights`: shapes; `data`: that of a batch, of so many `words` if these are not 0."""

    model: Callable[[Any, Any, Plan], Any]
    weights: Mapping[str, tuple[int, ...]]
    data: tuple[int, ...]
    classes: int
    words: int = 0


NETWORKS = {
    "convolutional": Network(
        convolutional,
        {
            **{"conv1": (5, 5, 3, 32), "conv2": (3, 3, 32, 64), "conv3": (3, 3, 64, 64)},
            **{"dense1": (1024, 1024), "dense2": (1024, 512), "classes": (512, 10)},
        },
        (64, 32, 32, 3),
        10,
    ),
    "points": Network(
        points,
        {
            **{"narrow1": (128, 256), "narrow2": (256, 256), "narrow3": (256, 256)},
            **{"wide1": (256, 1024), "wide2": (1024, 1024), "wide3": (1024, 1024)},
            "classes": (1024, 10),
        },
        (64, 64, 128),
        10,
    ),
    "residual": Network(
        residual,
        {
            **{"embedding": (1000, 128), "wide1": (128, 512), "narrow1": (512, 128)},
            **{"wide2": (128, 512), "narrow2": (512, 128), "hidden": (128, 2048)},
            "classes": (2048, 1000),
        },
        (64, 32),
        1000,
        1000,
    ),
}


class Training:
    """`plan`: the emitted module; None: one device alone."""

    def __init__(self, network: str, plan: Any) -> None:
        own = NETWORKS[network]
        data = own.data
        random = np.random.default_rng(0)
        self._weights = {}
        for name, shape in own.weights.items():
            drawn = random.normal(size=shape).astype("f") * np.prod(shape[:-1]) ** -0.5
            if name == "embedding":
                self._weights[name] = {"embeddings": drawn}
            else:
                self._weights[name] = {"kernel": drawn, "bias": np.zeros(shape[-1], "f")}
        if own.words:
            x = random.integers(0, own.words, data).astype("i")
        else:
            x = random.normal(size=data).astype("f")
        y = random.integers(0, own.classes, data[0]).astype("i")
        self._plan = plan
        rows = slice(None) if plan is None else plan.rows(data[0])
        self._data = [a if plan is None else plan.batch(a[rows], data[0]) for a in (x, y)]

        def loss(params: Any, x: Any, y: Any) -> Any:
            logits = own.model(params, x, plan or _Alone())
            chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)
            return -jnp.mean(chosen)

        def step(params: Any, x: Any, y: Any) -> Any:
            value, gradients = jax.value_and_grad(loss)(params, x, y)
            return jax.tree.map(lambda a, b: a - RATE * b, params, gradients), value

        self.anew()
        if plan is None:
            jitted = jax.jit(step, donate_argnums=0)
        else:
            whole = jax.sharding.NamedSharding(plan.mesh(), jax.sharding.PartitionSpec())
            kept = jax.tree.map(lambda one: one.sharding, self._params)
            jitted = jax.jit(step, donate_argnums=0, out_shardings=(kept, whole))
        self._step = jitted.lower(self._params, *self._data).compile()

    def anew(self) -> None:
        if self._plan is None:
            self._params = jax.tree.map(jnp.asarray, self._weights)
        else:
            self._params = self._plan.shard(self._weights)

    def run(self, steps: int) -> dict[str, list[float]]:
        seconds, losses = [], []
        for _ in range(steps):
            began = time.perf_counter()
            self._params, loss = self._step(self._params, *self._data)
            jax.block_until_ready((self._params, loss))
            seconds.append(time.perf_counter() - began)
            losses.append(float(loss))
        return {"seconds": seconds, "losses": losses}

    def collectives(self) -> list[tuple[str, int]]:
        """Kind and bytes of what each gives out in one rank."""
        found = []
        for line in self._step.as_text().splitlines():
            if match := _COLLECTIVE.search(line):
                shapes = re.findall(r"(\w+)\[([\d,]*)\]", match.group(1))
                size = sum(
                    _SIZES.get(kind, 4) * int(np.prod([int(n) for n in dims.split(",") if n]))
                    for kind, dims in shapes
                )
                found.append((match.group(2), int(size)))
        return found


def main() -> None:
    address, rank, ranks, network, folder = sys.argv[1:]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        address,
        int(ranks),
        int(rank),
        cluster_detection_method="deactivate",
        # a rank with a small share of a core compiles for a while
        heartbeat_timeout_seconds=600,
        coordinator_bind_address=address,
    )
    sys.path.insert(0, folder)
    trainings: dict[str, Training] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if "links" in asked:
            print(json.dumps(links.timed()), flush=True)
            continue
        name = asked["strategy"]
        if name not in trainings:
            plan = importlib.import_module(name) if name else None
            trainings[name] = Training(network, plan)
        one = trainings[name]
        if asked.get("anew"):
            one.anew()
        answer = one.run(asked["steps"])
        if asked.get("collectives"):
            answer["collectives"] = one.collectives()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
