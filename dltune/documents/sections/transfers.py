"""The plan's section on transfers: in which order servers send a worker its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from dltune.documents.faults import AMOUNT, Bound, at_least, at_most, each, repeated

Order = Literal["improved", "tac", "tic"]
SHUFFLES = 101  # orders by chance, of which the median stands for none


class Transfer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor that comes from the task `sender`: its size, and the seconds that it travels alone
    (None: not known)."""

    tensor: str
    sender: str
    bytes: int
    seconds: float | None


class Prediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`seconds` of a step from the first transfer on, where transfers come in this order ("none":
    the median of orders by chance), and its scheduling efficiency (equation 3 of TicTac): 1 for the
    shortest step that can be, 0 for the longest."""

    order: str
    seconds: float
    efficiency: float


class Receiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one task receives in each step, in the order planned. `signature`: of its graph.
    `lower`, `upper`: seconds between which a step lies in any order (equations 1 and 2; None
    without times). `predictions`: that of no order first; empty without times."""

    task: str
    signature: str
    transfers: tuple[Transfer, ...]
    lower: float | None = None
    upper: float | None = None
    predictions: tuple[Prediction, ...] = ()


class Transfers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`order`: how it was chosen. `window`: bytes that a server hands to its transport before that
    has taken them."""

    order: Order
    receivers: tuple[Receiver, ...]
    window: int = 1 << 20


def faults(section: Transfers) -> Iterator[str]:
    """All that cannot be done, one sentence each, the field's path first."""
    yield from at_least(1).of("transfers", section, "window")
    if not section.receivers:
        yield "transfers.receivers must be at least one, got none"
    yield from repeated("transfers.receivers", "task", (one.task for one in section.receivers))
    for here, receiver in each("transfers.receivers", section.receivers, "task"):
        yield from _NAME.of(here, receiver, "task")
        yield from AMOUNT.of(here, receiver, "lower", "upper")
        yield from repeated(f"{here}.transfers", "tensor", (t.tensor for t in receiver.transfers))
        for at, transfer in each(f"{here}.transfers", receiver.transfers, "tensor"):
            yield from AMOUNT.of(at, transfer, "bytes", "seconds")
            yield from _NAME.of(at, transfer, "tensor", "sender")
        for at, found in each(f"{here}.predictions", receiver.predictions, "order"):
            yield from AMOUNT.of(at, found, "seconds")
            yield from at_most(1).of(at, found, "efficiency")
        orders = [found.order for found in receiver.predictions]
        yield from repeated(f"{here}.predictions", "order", orders)
        if orders and (orders[0] != "none" or section.order not in orders):
            yield f"{here}.predictions must have none first, and {section.order}, got {orders}"


_NAME = Bound("a name that can be printed", lambda name: bool(name) and name.isprintable())
