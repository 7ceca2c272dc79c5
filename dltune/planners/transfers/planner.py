"""The planner of transfers, as the registry knows it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from dltune.documents.plan import Plan
from dltune.documents.sections import transfers
from dltune.documents.sections.transfers import Order, Transfers
from dltune.errors import UsageError
from dltune.planners.enforcement import Enforcement, Run
from dltune.planners.planner import Decision, Planner
from dltune.planners.shown import Shown

GIGABIT = 1e9 / 8  # bytes a second
# of when tensors came, what a link explains at least where it is what they wait for
GOOD_FIT = 0.5


class TransfersPlanner(Planner[Transfers]):
    name = "transfers"
    summary = "The order in which servers send workers their parameters, from a worker's profile."
    section = Transfers
    after = ("settings", "allreduce", "threads")

    def faults(self, section: Transfers, plan: Plan) -> Iterator[str]:
        return transfers.faults(section)

    def parameters(self) -> Sequence[click.Parameter]:
        return [
            click.Argument(["profile"], type=click.Path(path_type=Path)),
            click.Option(
                ["--order"],
                type=click.Choice(get_args(Order)),
                default="improved",
                show_default=True,
                help="TicTac's two (tic needs no times), or one that is never worse.",
            ),
            click.Option(
                ["--workers"],
                type=click.IntRange(min=1),
                help="Plan for so many, each with the graph of the profile's.",
            ),
            click.Option(
                ["--ps", "servers"],
                type=click.IntRange(min=1),
                help="Plan for so many servers, with the parameters spread evenly.",
            ),
            click.Option(
                ["--bandwidth"],
                type=click.FloatRange(1e-3, 1e6),
                metavar="GBIT/S",
                help="Of the link from each server to each worker.  [as measured]",
            ),
            click.Option(
                ["--simulate"],
                is_flag=True,
                help="Tell what the order would bring on other clusters and networks.",
            ),
        ]

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[Transfers]:
        """A worker can compute while parameters still come: the more, the better the order suits
        its graph. `dltune run` on each task's command holds the servers to the order."""
        return _decide(**parameters)

    def names_ops(self, section: Transfers) -> bool:
        return True

    def enforce(self, section: Transfers, run: Run) -> Enforcement:
        from dltune.planners.transfers.enforce import EnforcedTransfers

        return EnforcedTransfers(section, run)

    def show(self, section: Transfers, plan: Plan, beside: Sequence[msgspec.Struct]) -> Shown:
        from dltune.planners.transfers.show import shown

        return shown(section)


PLANNER = TransfersPlanner()


def _decide(
    profile: Path,
    order: Order,
    workers: int | None,
    servers: int | None,
    bandwidth: float | None,
    simulate: bool,
) -> Decision[Transfers]:
    from dltune.documents import profile as documents
    from dltune.planners.transfers import show
    from dltune.planners.transfers.decide import WORTH, Cluster, decide, worthwhile

    if bandwidth is not None and math.isnan(bandwidth):
        raise UsageError("--bandwidth nan is no number of Gbit/s")
    found = documents.load(profile)
    cluster = Cluster(workers, servers, bandwidth * GIGABIT if bandwidth else None)
    section = decide(found, order, cluster)
    remarks = [
        f"when tensors came from {link.sender} to {link.receiver} hardly follows their sizes "
        f"({link.fit:.0%}): the network is not what they wait for, or the machine was busy"
        for link in found.links
        if bandwidth is None and link.bandwidth is not None and link.fit < GOOD_FIT
    ]
    first = section.receivers[0]
    if first.lower is not None and first.upper is not None:
        remarks.append(
            f"in any order a step of {first.task} takes between {first.lower * 1e3:.1f} and "
            f"{first.upper * 1e3:.1f} ms from the first transfer on, one op at a time"
        )
    if not any(worthwhile(one, order) for one in section.receivers):
        remarks.append(
            f"no order makes a step {WORTH:.0%} shorter: no tensor is held back for its turn"
        )
    simulated = None
    if simulate:
        from dltune.planners.transfers.simulated import simulated as on_clusters

        simulated = on_clusters(found, order, cluster)
    return Decision(
        section,
        found.machine,
        found,
        choice=show.choice(section),
        remarks=remarks,
        shown=show.predictions(section, simulated),
        summary={**msgspec.to_builtins(section), "simulated": simulated} if simulated else None,
    )
