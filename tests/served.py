"""A worker whose parameters come from servers, as its profile tells of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import synthetic

from dltune.schemas.profile import (
    Link,
    Node,
    Op,
    OpTime,
    Partner,
    Profile,
    Step,
    Tensor,
)

WORKER, SERVER = "/job:worker/task:0", "/job:ps/task:0"
MIB = 1 << 20


def device(task: str) -> str:
    return f"{task.replace('/task', '/replica:0/task')}/device:CPU:0"


def receive(tensor: str, size: int, sender: str = SERVER, worker: str = WORKER) -> Node:
    met = Partner(f"edge_7_{tensor}", device(sender), device(worker))
    made = msgspec.structs.replace(synthetic.node("_Recv", 0), partner=met, type="_Recv")
    return msgspec.structs.replace(made, outputs=(Tensor("float", size),), name=f"{tensor}_S1")


def ops(*seconds: float) -> list[Op]:
    """The first is that of receives; each of the others takes so long."""
    timed = [
        Op(f"Op{i}", f"Op{i}", (), 1, 0, took, (OpTime(1, "spread", 5, took, took, 0.0),))
        for i, took in enumerate(seconds, 1)
    ]
    return [Op("_Recv", "_Recv", (), 1, 0, 1.0, ()), *timed]


def profile(
    nodes: Sequence[Node],
    *seconds: float,
    bandwidth: float | None = float(MIB),
    senders: Sequence[str] = (SERVER,),
    peers: Sequence[Step] = (),
) -> Profile:
    """A MiB travels a second unless another bandwidth is given."""
    made = synthetic.profile(synthetic.machine(2), ops(*seconds), {"step": nodes})
    (step,) = made.steps
    links = tuple(Link(sender, WORKER, 0.1, 0.0, bandwidth, 9, 0.9) for sender in senders)
    of_worker = msgspec.structs.replace(step, device=device(WORKER))
    return msgspec.structs.replace(made, steps=(of_worker,), links=links, peers=tuple(peers))


def first_figure() -> list[Node]:
    """Fig. 1(a) of TicTac: one op needs the first parameter, another that op and the second one.
    The bad order sends the second first. The second stands first here, too."""
    return [
        receive("second", MIB),
        receive("first", MIB),
        synthetic.node("Op1", 1, [1]),
        synthetic.node("Op2", 2, [0, 2]),
    ]
