"""What a worker's step receives from servers, how long each takes to come; what it sends them."""

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
    """`node`: of the step. `beside`: nodes with which it waits for the tensor without reading it;
    they receive no bytes. `seconds`: that it travels alone; None: the profile does not tell."""

    node: int
    tensor: str
    sender: str
    receiver: str
    bytes: int
    seconds: float | None
    beside: tuple[int, ...] = ()


def receives(profile: Profile, step: Step, bandwidth: float | None = None) -> list[Receive]:
    """Each tensor once, in the order of the nodes. `bandwidth`: bytes a second of each link instead
    of what was measured. What workers send each other is left out, and what a server sends only
    when something has come to it: there is no order in which they could come at once."""
    found: defaultdict[str, list[Receive]] = defaultdict(list)
    for one in _receives(profile.links, step, bandwidth):
        found[one.tensor].append(one)
    whole = [_whole(receives) for receives in found.values()]
    return sorted(whole, key=lambda one: one.node)


def _whole(receives: Sequence[Receive]) -> Receive:
    """Of one tensor."""
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
    """That of the two; of a worker that was not measured, what its sender has to another."""
    near = [link for link in links if link.sender == sender]
    return next((link for link in near if link.receiver == receiver), near[0] if near else None)


def sends(step: Step) -> list[Receive]:
    """What servers receive of a worker's step, by the nodes that send it: gradients, in the order
    of the nodes."""
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
    """As if there were so many servers."""
    placed = zip(received, servers_of(received, servers), strict=True)
    return [replace(one, sender=f"{job(one.sender)}/task:{server}") for one, server in placed]


def servers_of(tensors: Sequence[Receive], servers: int) -> list[int]:
    """Of so many servers, that of each tensor: the one with the fewest bytes when it is placed, in
    the order of the nodes."""
    load, place = [0] * servers, dict[str, int]()
    for one in tensors:
        server = place.setdefault(one.tensor, load.index(min(load)))
        load[server] += one.bytes
    return [place[one.tensor] for one in tensors]
