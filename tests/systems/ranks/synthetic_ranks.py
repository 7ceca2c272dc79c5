"""A Horovod job that never ran: its profile, as captured from one rank, and a report on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
import synthetic

from dltune.schemas.machine import Machine
from dltune.schemas.profile import Node, Op, Profile
from dltune.simulate.machine_transfer import Law
from dltune.systems.ranks.allreduce.section import Controller
from dltune.systems.ranks.horovod.schema import (
    SCHEMA,
    Cycles,
    Distribution,
    Horovod,
    Rank,
    Role,
    Tensor,
    ThreadUse,
    Timeline,
    TransferCost,
)

SCOPE = "DistributedGradientTape_Allreduce"


def allreduce(place: int, shape: Sequence[int]) -> tuple[str, Op]:
    """Name and op of the allreduce of a gradient, as TensorFlow names what Horovod builds."""
    cond = f"cond_{place}" if place else "cond"
    size = ",".join(map(str, shape))
    op = Op(
        key=f"HorovodAllreduce(float[{size}]){{reduce_op=0}}",
        type="HorovodAllreduce",
        inputs=(f"float[{size}]",),
        count=1,
        output_bytes=0,
        own=5e-3,
        times=(),
    )
    return f"{SCOPE}/{cond}/then/_{place}/{SCOPE}/{cond}/HorovodAllreduce_grad_{place}", op


def profile(
    there: Machine,
    *,
    layers: int = 6,
    elements: int = 1000,
    seconds: float = 2e-3,
    updates: Mapping[int, float] = MappingProxyType({}),
) -> Profile:
    """`synthetic.network`, with each filter's gradient, of shape (`elements`, layer + 1), reduced
    before it is applied, which takes a moment, or as many seconds as `updates` says of a layer.

    The list of gradients is in the order of the layers, so the first is there last.
    """
    plain = synthetic.network(there, layers=layers, small=1, seconds=seconds, span=0.05)
    nodes, ops = list(plain.steps[0].nodes), list(plain.ops)
    applied = [i for i, node in enumerate(nodes) if node.type == "ResourceApplyAdam"]
    for place, index in zip(reversed(range(layers)), applied, strict=True):
        name, op = allreduce(place, (elements, place + 1))
        ops.append(op)
        nodes.append(Node(name, op.type, len(ops) - 1, nodes[index].inputs, (), 0, 1.0, None, None))
        nodes[index] = msgspec.structs.replace(nodes[index], inputs=(len(nodes) - 1,))
        if place in updates:
            law, key = Law(updates[place], 0.0, 0.0), f"ResourceApplyAdam#{place}"
            ops.append(synthetic.op("ResourceApplyAdam", law, there, key=key))
            nodes[index] = msgspec.structs.replace(nodes[index], op=len(ops) - 1)
    step = msgspec.structs.replace(plain.steps[0], nodes=tuple(nodes))
    return msgspec.structs.replace(plain, steps=(step,), ops=tuple(ops))


def spread(median: float) -> Distribution:
    return Distribution(100, median, median, 2 * median, 3 * median, 5 * median)


def rank(
    number: int,
    *,
    size: int = 2,
    local: int = 2,
    controller: Controller = "mpi",
    cpu: Mapping[Role, float] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Rank:
    """`cpu`: cores that the threads of a role keep busy, one thread each."""
    uses = cpu or {"compute": 0.7, "background": 0.3, "helper": 0.01}
    threads = tuple(
        ThreadUse(
            tid=1000 * (number + 1) + k,
            name="python",
            role=role,
            cpu=use,
            user=use,
            system=0.0,
            wait=0.05,
            voluntary=500.0,
            involuntary=10.0,
            cpus=(0, 1),
        )
        for k, (role, use) in enumerate(uses.items())
    )
    background = next(t for t in threads if t.role == "background")
    return Rank(
        rank=number,
        size=size,
        local_rank=number % local,
        local_size=local,
        host=f"node{number // local}",
        pid=100 + number,
        seconds=20.0,
        controller=controller,
        horovod="0.28.1",
        mpi=None,
        settings=dict(settings or {}),
        evidence=("init",),
        background=background.tid,
        cpu=sum(uses.values()),
        cpus=(0, 1),
        bound=False,
        threads=threads,
        cycles=Cycles(1e-3, 500.0, spread(2e-3), spread(3e-4), 0.9),
        ended=None,
        unseen=(),
    )


def timeline(*, step: float = 0.05) -> Timeline:
    """A transfer takes 0.5 ms and 5 ns a byte, a step `step` seconds."""
    steps, tensors = 100, 6
    return Timeline(
        path="timeline.json",
        seconds=steps * step,
        events=1000,
        truncated=False,
        controller=None,
        cycles=None,
        batches=tensors * steps,
        fused=spread(1.0),
        cached=1.0,
        negotiation=spread(1e-3),
        queue=spread(1e-4),
        transfer=spread(1e-3),
        late={},
        tensors=tuple(
            Tensor(f"t{k}", steps, 100_000, spread(1e-3), spread(1e-4), spread(1e-3))
            for k in range(tensors)
        ),
        step=spread(step),
        cost=TransferCost(0.5e-3, 5e-9),
    )


def report(
    there: Machine, ranks: Sequence[Rank] | None = None, *, timeline: Timeline | None = None
) -> Horovod:
    found = (rank(0), rank(1)) if ranks is None else tuple(ranks)
    return Horovod(
        schema=SCHEMA,
        created="2026-01-01T00:00:00+00:00",
        dltune="0",
        command=("horovodrun", "python", "train.py"),
        machine=there.fingerprint,
        machine_name=there.name,
        cores={one.host: len(there.cores) for one in found},
        partial=False,
        ranks=found,
        timeline=timeline,
        findings=(),
    )
