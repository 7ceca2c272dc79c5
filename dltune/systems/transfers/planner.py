"""Planner of the order of transfers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from dltune.base.errors import UsageError
from dltune.plan.planner import Decision, Enforcement, Observer, Planner, Run
from dltune.schemas.plan import Plan
from dltune.systems.transfers.section import GIGABIT, Order, Transfers
from dltune.views import View

if TYPE_CHECKING:
    from dltune.schemas.profile import Profile, Step
    from dltune.simulate import engine

# part of the tensors' times that a link explains at least where tensors wait for the link
GOOD_FIT = 0.5


class TransfersPlanner(Planner[Transfers]):
    name = "transfers"
    summary = "Choose the order in which parameter servers send parameters to workers."
    example = "dltune plan transfers profile.json"
    section = Transfers
    after = ("settings", "allreduce", "threads")

    def parameters(self) -> Sequence[click.Parameter]:
        return [
            click.Argument(["profile"], type=click.Path(path_type=Path)),
            click.Option(
                ["--order"],
                type=click.Choice(get_args(Order)),
                default="improved",
                show_default=True,
                help="Order transfers by this method: tic or tac as in the paper TicTac (tic needs "
                "no times), or improved, which is predicted to be at least as fast as both.",
            ),
            click.Option(
                ["--workers"],
                type=click.IntRange(min=1),
                metavar="N",
                help="Plan for N workers, each with the profiled worker's graph (default: the "
                "profiled workers).",
            ),
            click.Option(
                ["--ps", "servers"],
                type=click.IntRange(min=1),
                metavar="N",
                help="Plan for N servers, with the parameters spread evenly (default: the profiled "
                "servers).",
            ),
            click.Option(
                ["--bandwidth"],
                type=click.FloatRange(1e-3, 1e6),
                metavar="GBIT/S",
                help="Set the bandwidth from each server to each worker, in Gbit/s (default: as "
                "measured).",
            ),
            click.Option(
                ["--simulate"],
                is_flag=True,
                help="Also predict the gain on other cluster sizes, networks and batch sizes.",
            ),
        ]

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[Transfers]:
        """PROFILE is a profile of a worker.

        A worker can compute with the first parameters while others are still on their way. The plan
        contains an order of transfers in which these overlap well with the worker's ops. Start each
        task of the job with `dltune run --plan` to make the servers send in this order.
        """
        return _decide(**parameters)

    def names_ops(self, section: Transfers) -> bool:
        return True

    def enforce(self, section: Transfers, run: Run) -> Enforcement:
        from dltune.systems.transfers.enforce import EnforcedTransfers

        return EnforcedTransfers(section, run)

    def timelines(
        self, section: Transfers, profile: Profile, step: Step
    ) -> Iterator[tuple[str, engine.Timeline]]:
        """Yield the step in no order of transfers, and in the planned order."""
        from dltune.systems.transfers.replay import replayed

        for receiver in section.receivers:
            if receiver.signature == step.signature and receiver.predictions:
                none, planned = replayed(profile, step, receiver)
                yield "no order of transfers, one op at a time", none
                yield f"transfers {section.order}, one op at a time", planned
                return

    def observer(self, section: Transfers, *, in_force: bool) -> Observer:
        from dltune.systems.transfers.enforce import TransferObserver

        return TransferObserver(section, in_force=in_force)

    def choice(self, section: Transfers) -> str:
        return f"transfers {section.order}"

    def show(self, section: Transfers, plan: Plan, beside: Sequence[msgspec.Struct]) -> View:
        from dltune.systems.transfers.show import shown

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
    from dltune.schemas import profile as documents
    from dltune.systems.transfers import show
    from dltune.systems.transfers.decide import WORTH, Cluster, decide, worthwhile

    if bandwidth is not None and math.isnan(bandwidth):
        raise UsageError(
            "--bandwidth nan is not a number", remedy="pass a number of Gbit/s, such as 10"
        )
    found = documents.load(profile)
    cluster = Cluster(workers, servers, bandwidth * GIGABIT if bandwidth else None)
    section = decide(found, order, cluster)
    remarks = [
        f"the sizes of tensors explain only {link.fit:.0%} of their arrival times from "
        f"{link.sender} to {link.receiver}: the network is not the limit, or the machine was busy"
        for link in found.links
        if bandwidth is None and link.bandwidth is not None and link.fit < GOOD_FIT
    ]
    first = section.receivers[0]
    if first.lower is not None and first.upper is not None:
        remarks.append(
            f"in every order, a step of {first.task} takes {first.lower * 1e3:.1f} to "
            f"{first.upper * 1e3:.1f} ms from the first transfer on, with one op at a time"
        )
    if not any(worthwhile(one, order) for one in section.receivers):
        remarks.append(
            f"no order shortens a step by {WORTH:.0%} or more, so the plan delays no tensor"
        )
    simulated = None
    if simulate:
        from dltune.systems.transfers.forecast import simulated as on_clusters

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
