"""The plan's section on transfers: the order in which parameter servers send a worker its
parameters. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from dltune.base.documents import AMOUNT, FILLED, LABEL, Bound, at_least, at_most, each, repeated

Order = Literal["improved", "tac", "tic"]
GIGABIT = 1e9 / 8  # bytes a second
SHUFFLES = 101  # orders by chance, whose median represents no order

_NAME = Bound("a printable name", lambda name: bool(name) and name.isprintable())


class Transfer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor that a worker receives.

    `tensor`: name.
    `sender`: task that sends it.
    `bytes`: size.
    `seconds`: transfer time without other transfers; null if unknown.
    """

    tensor: Annotated[str, LABEL, _NAME]
    sender: Annotated[str, _NAME]
    bytes: Annotated[int, AMOUNT]
    seconds: Annotated[float | None, AMOUNT]


class Prediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Simulated step under an order of transfers.

    `order`: `improved`, `tac`, `tic`, or `none`: the median of random orders.
    `seconds`: step time from the first transfer on.
    `efficiency`: scheduling efficiency (equation 3 of TicTac): 1 for the shortest possible step, 0
      for the longest.
    """

    order: Annotated[str, LABEL]
    seconds: Annotated[float, AMOUNT]
    efficiency: Annotated[float, at_most(1)]


class Receiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Transfers to one worker.

    `task`, `signature`: the worker and its graph.
    `transfers`: transfers in the planned order.
    `lower`, `upper`: bounds of the step time over all orders (equations 1 and 2 of TicTac); null
      without times.
    `predictions`: simulated orders, `none` first; empty without times.
    """

    task: Annotated[str, LABEL, _NAME]
    signature: str
    transfers: tuple[Transfer, ...]
    lower: Annotated[float | None, AMOUNT] = None
    upper: Annotated[float | None, AMOUNT] = None
    predictions: tuple[Prediction, ...] = ()

    def relation_faults(self) -> Iterator[str]:
        yield from repeated("transfers", "tensor", (one.tensor for one in self.transfers))
        yield from repeated("predictions", "order", (found.order for found in self.predictions))


class Transfers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Order of transfers.

    `order`: method that chose the order.
    `receivers`: workers.
    `window`: bytes that a server hands to its transport before the transport has sent them.
    """

    order: Order
    receivers: Annotated[tuple[Receiver, ...], FILLED]
    window: Annotated[int, at_least(1)] = 1 << 20

    def relation_faults(self) -> Iterator[str]:
        yield from repeated("receivers", "task", (one.task for one in self.receivers))
        for here, receiver in each("receivers", self.receivers):
            orders = [found.order for found in receiver.predictions]
            if orders and (orders[0] != "none" or self.order not in orders):
                yield (
                    f"{here}.predictions must start with 'none' and contain {self.order!r}, got "
                    f"{orders}"
                )
