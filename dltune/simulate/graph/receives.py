"""The tensors that a worker's step receives from servers, with their times, and those it sends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dltune.schemas.profile import (
    Link,
    Profile,
    Step,
    job,
)


@dataclass(frozen=True)
class Receive:
    """A received tensor. `node`: of the step. `beside`: nodes that wait for the tensor with it,
    without reading it; they receive no bytes. `seconds`: its travel time alone; None: unknown from
    the profile."""

    node: int
    tensor: str
    sender: str
    receiver: str
    bytes: int
    seconds: float | None
    beside: tuple[int, ...] = ()


def receives(profile: Profile, step: Step, bandwidth: float | None = None) -> list[Receive]:
    """Return each tensor once, in the order of the nodes. `bandwidth`: bytes a second of each link
    instead of the measured value. Tensors between workers are left out, and tensors that a server
    sends only after it has received data: there is no order in which they could come at once."""
    found: defaultdict[str, list[Receive]] = defaultdict(list)
    for one in _receives(profile.links, step, bandwidth):
        found[one.tensor].append(one)
    whole = [_whole(receives) for receives in found.values()]
    return sorted(whole, key=lambda one: one.node)


def _whole(receives: Sequence[Receive]) -> Receive:
    """Merge the receives of one tensor."""
    whole = max(receives, key=lambda one: one.bytes)
    return replace(whole, beside=tuple(one.node for one in receives if one is not whole))


def _receives(links: Sequence[Link], step: Step, bandwidth: float | None) -> Iterator[Receive]:
    for number, node in enumerate(step.nodes):
        if node.received is None or node.partner is None or node.partner.answer:
            continue
        sender, receiver = node.received
        if job(sender) == job(receiver):
            continue
        size = sum(tensor.bytes for tensor in node.outputs)
        link = _link(links, sender, receiver)
        rate = bandwidth or (link.bandwidth if link else None)
        seconds = (link.each if link else 0.0) + size / rate if rate else None
        yield Receive(number, node.partner.tensor, sender, receiver, size, seconds)


def _link(links: Sequence[Link], sender: str, receiver: str) -> Link | None:
    """Return the link of the two; for an unmeasured worker, its sender's link to another worker."""
    near = [link for link in links if link.sender == sender]
    return next((link for link in near if link.receiver == receiver), near[0] if near else None)


def sends(step: Step) -> list[Receive]:
    """Return the tensors that servers receive from a worker's step, by the nodes that send them:
    gradients, in the order of the nodes."""
    found = []
    for number, node in enumerate(step.nodes):
        tasks = (
            node.partner.tasks if node.type == "_Send" and node.partner and node.inputs else None
        )
        if node.partner is None or tasks is None or job(tasks[0]) == job(tasks[1]):
            continue
        given = step.nodes[node.inputs[0]]
        slot = node.slots[0] if node.slots else 0
        size = given.outputs[slot].bytes if given.outputs else given.output_bytes
        found.append(Receive(number, node.partner.tensor, *tasks, size, None))
    return found


def spread(received: Sequence[Receive], servers: int) -> list[Receive]:
    """Return the receives as if there were so many servers."""
    placed = zip(received, servers_of(received, servers), strict=True)
    return [replace(one, sender=f"{job(one.sender)}/task:{server}") for one, server in placed]


def servers_of(tensors: Sequence[Receive], servers: int) -> list[int]:
    """Return the server of each tensor among so many servers: the server with the fewest bytes when
    the tensor is placed, in the order of the nodes."""
    load, place = [0] * servers, dict[str, int]()
    for one in tensors:
        server = place.setdefault(one.tensor, load.index(min(load)))
        load[server] += one.bytes
    return [place[one.tensor] for one in tensors]
