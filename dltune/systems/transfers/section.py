"""The plan's section on transfers: the order in which parameter servers send a worker its
parameters. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from dltune.base.documents import AMOUNT, Bound, at_least, at_most, each, repeated

Order = Literal["improved", "tac", "tic"]
GIGABIT = 1e9 / 8  # bytes a second
SHUFFLES = 101  # orders by chance, whose median represents no order


class Transfer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor that a worker receives.

    `tensor`: name.
    `sender`: task that sends it.
    `bytes`: size.
    `seconds`: transfer time without other transfers; null if unknown.
    """

    tensor: str
    sender: str
    bytes: int
    seconds: float | None


class Prediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Simulated step under an order of transfers.

    `order`: `improved`, `tac`, `tic`, or `none`: the median of random orders.
    `seconds`: step time from the first transfer on.
    `efficiency`: scheduling efficiency (equation 3 of TicTac): 1 for the shortest possible step, 0
      for the longest.
    """

    order: str
    seconds: float
    efficiency: float


class Receiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Transfers to one worker.

    `task`, `signature`: the worker and its graph.
    `transfers`: transfers in the planned order.
    `lower`, `upper`: bounds of the step time over all orders (equations 1 and 2 of TicTac); null
      without times.
    `predictions`: simulated orders, `none` first; empty without times.
    """

    task: str
    signature: str
    transfers: tuple[Transfer, ...]
    lower: float | None = None
    upper: float | None = None
    predictions: tuple[Prediction, ...] = ()


class Transfers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Order of transfers.

    `order`: method that chose the order.
    `receivers`: workers.
    `window`: bytes that a server hands to its transport before the transport has sent them.
    """

    order: Order
    receivers: tuple[Receiver, ...]
    window: int = 1 << 20


def faults(section: Transfers) -> Iterator[str]:
    """All that cannot be done, one sentence each, the field's path first."""
    yield from at_least(1).of("transfers", section, "window")
    if not section.receivers:
        yield "transfers.receivers must not be empty"
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
            yield (
                f"{here}.predictions must start with 'none' and contain {section.order!r}, got "
                f"{orders}"
            )


_NAME = Bound("a printable name", lambda name: bool(name) and name.isprintable())
