"""Profiles of training jobs that never ran: a network's graph, and ops that follow a stated law."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from dltune.schemas import profile as document
from dltune.schemas.machine import SCHEMA as MACHINE
from dltune.schemas.machine import Core, Machine
from dltune.schemas.profile import (
    Framework,
    Node,
    Op,
    OpTime,
    Profile,
    Samples,
    Settings,
    Step,
)
from dltune.simulate.machine_transfer import Law
from dltune.system.topology import ladder, placements


def machine(
    cores: int = 2,
    *,
    tile: int = 2,
    hardware: int = 1,
    smt: float | None = None,
    quota: float | None = None,
    sockets: int = 1,
    name: str = "synthetic",
) -> Machine:
    return Machine(
        schema=MACHINE,
        name=name,
        cores=tuple(
            Core(
                cpus=tuple(c + cores * h for h in range(hardware)),
                tile=c // tile,
                socket=c * sockets // cores,
                numa=c * sockets // cores,
            )
            for c in range(cores)
        ),
        quota=quota,
        smt_throughput=smt,
    )


def op(
    kind: str, law: Law | None, there: Machine, *, key: str = "", count: int = 1, interval: int = 1
) -> Op:
    """An op measured at every count of the ladder; without a law it is not controlled."""
    times = []
    if law is not None:
        for n in ladder(there, interval):
            for placement in placements(there, n):
                seconds = law.seconds(n)
                times.append(OpTime(n, placement, 5, seconds, seconds, 0.01))
    return Op(
        key=key or f"{kind}(f32[8,8])",
        type=kind,
        inputs=("f32[8,8]",),
        count=count,
        output_bytes=256,
        own=law.seconds(len(there.cores)) if law else 1e-6,
        times=tuple(times),
    )


def node(name: str, index: int | None, inputs: Sequence[int] = (), repeats: float = 1.0) -> Node:
    return Node(
        name=name,
        type=name.split("_")[0],
        op=index,
        inputs=tuple(inputs),
        control=(),
        output_bytes=256,
        repeats=repeats,
    )


def profile(
    there: Machine,
    ops: Sequence[Op],
    graphs: Mapping[str, Sequence[Node]],
    *,
    span: float = 0.0,
    between: float = 0.0,
    settings: Settings | None = None,
    partial: str | None = None,
) -> Profile:
    """`span`: of each step, in seconds; 0 leaves the simulation without an calibration."""
    measured = Samples(10, span, span, 0.0)
    wall = Samples(10, span + between, span + between, 0.0)
    return Profile(
        schema=document.SCHEMA,
        created="2026-01-01T00:00:00+00:00",
        dltune="0",
        partial=partial,
        command=("python", "train.py"),
        machine=there,
        framework=Framework("tensorflow", "2.21.0", "v2.21.0", "3.11"),
        settings=settings or Settings(len(there.cores), len(there.cores)),
        interval=1,
        steps=tuple(
            Step(f"signature-{name}", name, 10, 1 / len(graphs), wall, measured, tuple(nodes))
            for name, nodes in graphs.items()
        ),
        ops=tuple(ops),
        memory=None,
        notes=(),
    )


def network(
    there: Machine,
    *,
    layers: int = 20,
    small: int = 4,
    branches: int = 1,
    seconds: float = 2e-3,
    optimum: float | None = None,
    seed: int = 0,
    interval: int = 1,
    **more: object,
) -> Profile:
    """A convolutional network's training step.

    Each layer has, forward, `branches` convolutions side by side with `small` ops after each, and,
    backward, a gradient to the inputs and one to the filter, which nothing but the optimiser waits
    for. `seconds`: of an average convolution on one thread; `optimum`: its best thread count.
    """
    draw = random.Random(seed)
    ops: list[Op] = []
    nodes: list[Node] = []

    def big(kind: str, layer: int) -> int:
        work = seconds * draw.uniform(0.5, 2.0)
        spawn = work / optimum**2 if optimum else 0.0
        ops.append(
            op(kind, Law(0.02 * work, work, spawn), there, key=f"{kind}#{layer}", interval=interval)
        )
        return len(ops) - 1

    tiny = len(ops)
    ops.append(op("Mul", Law(4e-6, 0.0, 0.0), there, count=layers * small * branches))
    ops.append(op("ResourceApplyAdam", Law(1e-6, 40e-6, 0.0), there, count=layers * branches))
    ops.append(op("IteratorGetNext", None, there))

    def add(name: str, index: int | None, inputs: Sequence[int]) -> int:
        nodes.append(node(f"{name}_{len(nodes)}", index, inputs))
        return len(nodes) - 1

    last = add("IteratorGetNext", tiny + 2, [])
    kept: list[tuple[int, int]] = []
    for layer in range(layers):
        ends = []
        for _ in range(branches):
            at = add("Conv2D", big("Conv2D", layer), [last])
            for _ in range(small):
                at = add("Mul", tiny, [at])
            kept.append((layer, last))
            ends.append(at)
        last = ends[0] if branches == 1 else add("Const", None, ends)
    for layer, before in reversed(kept):
        filters = add("Filter", big("Conv2DBackpropFilter", layer), [last, before])
        add("ResourceApplyAdam", tiny + 1, [filters])
        last = add("Input", big("Conv2DBackpropInput", layer), [last])
    unique: dict[str, int] = {}
    ops = [
        Op(f"{o.key}.{i}" if unique.setdefault(o.key, i) != i else o.key, *_rest(o))
        for i, o in enumerate(ops)
    ]
    return profile(there, ops, {"train": nodes}, **more)  # type: ignore[arg-type]


def _rest(o: Op) -> tuple[object, ...]:
    return o.type, o.inputs, o.count, o.output_bytes, o.own, o.times
