"""The section on transfers, and what came of it, for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dltune.base.formatting import Bar, Key, Table, columns, counted
from dltune.systems.transfers.section import (
    GIGABIT,
    SHUFFLES,
    Order,
    Receiver,
    Transfers,
)
from dltune.views import Headline, Section, View

if TYPE_CHECKING:
    from dltune.systems.transfers.forecast import Simulated

# how a step goes that has no order
NAMES = {"none": f"none (median of {SHUFFLES} random orders)"}


@dataclass(frozen=True)
class Stepped:
    """The effect of a run in one worker. `median` of its steps' seconds (None: there was one step),
    `efficiency`: the median E of the `recorded` steps, `worst`: the least. Both are the lower of
    two: by the times of a step's own transfers (median: `own`), and by those of the plan (`apart`,
    None where it has none)."""

    task: str
    pid: int
    steps: int
    median: float | None
    spread: float
    efficiency: float | None
    worst: float | None
    own: float | None
    apart: float | None
    recorded: int


@dataclass(frozen=True)
class Sent:
    """The number of tensors that are `planned` to come from `sender`, or of more that are planned
    from elsewhere, it has in its graphs for `receiver`."""

    sender: str
    receiver: str
    tensors: int
    planned: int

    def __str__(self) -> str:
        planned = counted(self.planned, "planned tensor")
        return f"{self.sender} sent {self.receiver} {self.tensors} of {planned}"


@dataclass(frozen=True)
class TransfersOutcome:
    """As far as the tasks ran under this dltune. `waits`: by what part the fastest of
    several workers ends a step sooner than the slowest, for which it waits where they train in
    step. `left`: what was not ordered, and why, sentences."""

    workers: tuple[Stepped, ...]
    servers: tuple[Sent, ...]
    waits: float | None
    left: tuple[str, ...] = ()


def intent(section: Transfers) -> Iterator[str]:
    """Yield the effects that would be enforced."""
    for one in section.receivers:
        senders = sorted({transfer.sender for transfer in one.transfers})
        yield (
            f"{', '.join(senders)} to {one.task}: {counted(len(one.transfers), 'tensor')} in the "
            f"order {section.order}, {_ahead(section, one)}"
        )


def _ahead(section: Transfers, receiver: Receiver) -> str:
    if section.window >= sum(one.bytes for one in receiver.transfers):
        return "no tensor delayed"
    return f"at most {section.window >> 10} KiB at once"


def sentences(outcome: TransfersOutcome, section: Transfers) -> Iterator[str]:
    """Yield the effects of the section."""
    for sent in outcome.servers:
        yield f"{sent} in the order {section.order}"
    for one in outcome.workers:
        text = f"{one.task}: {counted(one.steps, 'step')}"
        if one.median is not None:
            text += f", median {one.median * 1e3:.1f} ms (spread {one.spread:.0%})"
        if one.efficiency is not None and one.worst is not None:
            text += (
                f", efficiency {one.efficiency:.2f} (worst {one.worst:.2f}) in "
                f"{counted(one.recorded, 'recorded step')}"
            )
            if one.own is not None and one.apart is not None:
                text += (
                    f" ({one.own:.2f} by these steps' own transfer times, {one.apart:.2f} by those "
                    "of the plan)"
                )
        yield text
    yield from outcome.left
    if outcome.waits is not None:
        yield f"the fastest worker took {outcome.waits:.0%} less time per step than the slowest"


def shown(section: Transfers) -> View:
    sections = [
        Section(f"to{number}", f"Transfers to {one.task}", [*_predicted(section, one), _order(one)])
        for number, one in enumerate(section.receivers)
    ]
    return View(sections, [Headline(1, _sentence(section))])


def choice(section: Transfers) -> str:
    """In a few words."""
    tensors = counted(max(len(one.transfers) for one in section.receivers), "tensor")
    return f"{section.order}, {tensors} to {counted(len(section.receivers), 'task')}"


def predictions(section: Transfers, simulated: Simulated | None) -> View:
    tables = [table for one in section.receivers for table in _predicted(section, one)]
    tables += _simulated(section.order, simulated) if simulated else []
    return View([Section("predictions", "Predicted steps", tables)])


def _simulated(order: Order, simulated: Simulated) -> Iterator[Table]:
    link = f"{simulated.bandwidth / GIGABIT:.3g} Gbit/s"
    yield Table(
        f"simulated steps on other clusters, each task with {link} in each direction",
        columns(">workers", ">servers", ">no order ms", f">{order} ms", ">gain", ">waiting"),
        [
            (
                str(case.workers),
                str(case.servers),
                f"{case.none * 1e3:.1f}",
                f"{case.ordered * 1e3:.1f}",
                f"{case.gain:+.1%}",
                f"{case.waiting:.0%}",
            )
            for case in simulated.sizes
        ],
    )
    first = simulated.networks[0]
    rates: dict[float, dict[float, str]] = {}
    for case in simulated.networks:
        rates.setdefault(case.bandwidth, {})[case.batch] = f"{case.gain:+.1%}"
    yield Table(
        f"gain of {order} with {counted(first.workers, 'worker')} and "
        f"{counted(first.servers, 'server')}, by network and batch size",
        columns(">Gbit/s", *(f">batch x{batch:g}" for batch in rates[first.bandwidth])),
        [(f"{rate / GIGABIT:g}", *gains.values()) for rate, gains in rates.items()],
    )


def _predicted(section: Transfers, receiver: Receiver) -> Iterator[Table]:
    """Yield the time that a step takes in each order, where times are known."""
    if not receiver.predictions:
        return
    none = receiver.predictions[0].seconds
    rows = [
        (
            NAMES.get(found.order, found.order),
            f"{found.seconds * 1e3:.1f}",
            f"{found.efficiency:.3f}",
            Bar(max(0.0, found.efficiency), chosen=found.order == section.order),
            f"{none / found.seconds:.3f}" if found.seconds else "",
            "planned" if found.order == section.order else "",
        )
        for found in receiver.predictions
    ]
    heads = ("order", ">predicted ms", ">efficiency", "", ">speed-up", "")
    yield Table(f"predicted step of {receiver.task}, by order of transfers", columns(*heads), rows)


def _order(receiver: Receiver) -> Table:
    rows = [
        (
            str(place),
            Key(one.tensor),
            one.sender,
            f"{one.bytes / 2**20:.3f}",
            "" if one.seconds is None else f"{one.seconds * 1e3:.3f}",
        )
        for place, one in enumerate(receiver.transfers, 1)
    ]
    heads = (">place", "tensor", "from", ">MiB", ">ms alone")
    return Table(f"transfers to {receiver.task}, in order", columns(*heads), rows)


def _sentence(section: Transfers) -> str:
    one = section.receivers[0]
    if not one.predictions:
        return f"Parameters are sent in the order {section.order}, which needs no times."
    planned = next(found for found in one.predictions if found.order == section.order)
    gain = one.predictions[0].seconds / planned.seconds if planned.seconds else 1.0
    return (
        f"With parameters in the planned order, a step of {one.task} is predicted to be "
        f"{gain:.2f}x as fast as without an order (efficiency {planned.efficiency:.2f})."
    )
