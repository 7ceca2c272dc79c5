"""Planner of Horovod's allreduce."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from dltune.base.errors import UsageError
from dltune.base.formatting import between_commas
from dltune.plan.planner import Decision, Enforcement, Planner, Run
from dltune.schemas.plan import Plan, Threads, Uniform
from dltune.systems.ranks.allreduce import section as allreduce
from dltune.systems.ranks.allreduce.section import AllreducePlan, Controller
from dltune.views import Section, View

if TYPE_CHECKING:
    from dltune.systems.ranks.horovod.schema import Horovod

# as in decide.py, which is imported only when there is something to decide
METHODS = {
    "core-partition": "SCP",
    "ordered-bins": "TOPO",
    "non-blocking": "NBCS",
    "global-sleep": "GS",
    "yield": "",
    "rest": "",
    "knobs": "",
}
ORDERS = ("graph", "tac")


class AllreducePlanner(Planner[AllreducePlan]):
    name = "allreduce"
    summary = "Plan cores, gradient order, sleeps and Horovod settings of a multi-rank job."
    example = "dltune plan allreduce profile.json report.json"
    section = AllreducePlan
    after = ("settings",)
    before = ("threads",)
    tables = ("cores",)
    formats = ("horovodrun-yaml", "rankfile", "env")

    def faults(self, section: AllreducePlan, plan: Plan) -> Iterator[str]:
        return allreduce.core_faults(section, plan.cores)

    def parameters(self) -> Sequence[click.Parameter]:
        path, count = click.Path(path_type=Path), click.IntRange(min=1)
        listed = ", ".join(
            name + (f" [{paper}]" if paper else "") for name, paper in METHODS.items()
        )
        return [
            click.Argument(["profile"], type=path),
            click.Argument(["report"], type=path, required=False),
            click.Option(
                ["--methods"],
                metavar="LIST",
                help=f"Plan exactly these methods, comma-separated: {listed}. The names in "
                "brackets are those of Pumma's thesis.  [default: all with a predicted gain]",
            ),
            click.Option(
                ["--order"],
                type=click.Choice(ORDERS),
                default="graph",
                show_default=True,
                help="Order the bins by the graph's dependencies, or by the work that waits for "
                "each gradient (TicTac's TAC).",
            ),
            click.Option(
                ["--ranks"],
                type=count,
                help="Plan for N ranks.  [default: the report's]",
                metavar="N",
            ),
            click.Option(
                ["--local"],
                type=count,
                help="Plan for N ranks on a node.  [default: the report's]",
                metavar="N",
            ),
            click.Option(
                ["--controller"],
                type=click.Choice(get_args(Controller)),
                help="Plan for Horovod over MPI or gloo.  [default: the report's]",
            ),
            click.Option(
                ["--measured"],
                type=path,
                multiple=True,
                metavar="REPORT",
                help="Compare with a report on the job under other settings, and plan the fastest. "
                "Repeatable.",
            ),
            click.Option(["--explain"], is_flag=True, help="List the gradients in each bin."),
        ]

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[AllreducePlan]:
        """PROFILE is from one rank of the multi-rank job (dltune profile). REPORT is from dltune
        horovod-report on the same job; without it, give --ranks and --controller.

        Nothing runs: each method is simulated, alone and combined, and the methods with a predicted
        gain go into the plan. dltune run applies the plan to the unmodified job.
        """
        return _decide(existing, **parameters)

    def places_threads(self, section: AllreducePlan) -> bool:
        return True

    def enforce(self, section: AllreducePlan, run: Run) -> Enforcement:
        from dltune.systems.ranks.allreduce.enforce import EnforcedAllreduce

        return EnforcedAllreduce(section, run)

    def show(self, section: AllreducePlan, plan: Plan, beside: Sequence[msgspec.Struct]) -> View:
        from dltune.systems.ranks.allreduce.show import shown

        return shown(section)


PLANNER = AllreducePlanner()


def _decide(
    existing: Plan | None,
    profile: Path,
    report: Path | None,
    methods: str | None,
    order: str,
    ranks: int | None,
    local: int | None,
    controller: Controller | None,
    measured: tuple[Path, ...],
    explain: bool,
) -> Decision[AllreducePlan]:
    from dltune.base import documents
    from dltune.schemas import profile as profile_document
    from dltune.systems.ranks.allreduce import measurements
    from dltune.systems.ranks.allreduce.decide import Search, applicable
    from dltune.systems.ranks.allreduce.measurements import basis, calls
    from dltune.systems.ranks.allreduce.model import Model
    from dltune.systems.ranks.allreduce.show import bins, export, predictions
    from dltune.systems.ranks.horovod.schema import load

    asked = _asked(methods)
    found = profile_document.load(profile)
    seen = load(report) if report else None
    others = [(path, load(path)) for path in measured]
    known = basis(found, seen, report, ranks=ranks, local=local, controller=controller)
    chosen, cannot = applicable(asked, known.controller, needs=seen is not None)
    reducing = calls(found)
    search = Search(Model(found, reducing, known), found.machine, _pools(existing), order)
    digest = documents.digest(seen) if seen else ""
    section, name = search.plan(chosen, forced=asked is not None, report=digest)
    if others:
        if seen is None:
            raise UsageError(
                "--measured needs the job's report to compare with",
                remedy="add the report: dltune plan allreduce PROFILE REPORT --measured OTHER",
            )
        compared = measurements.measured(others, seen)
        section = measurements.settled(section, compared, chosen, found.machine)
    reasons = (*section.reasons, *cannot)
    if seen is not None and seen.partial:
        reasons += ("the report is partial: the watch ended before the job",)
    section = msgspec.structs.replace(section, reasons=reasons)
    return Decision(
        section,
        found.machine,
        found,
        choice=name,
        remarks=section.reasons,
        shown=View([Section("methods", "", [predictions(section, name)])]),
        explanation=bins(section, found, reducing) if explain else (),
        formats={
            name: partial(export, name, section, found.machine, _hosts(seen))
            for name in PLANNER.formats
        },
    )


def _asked(methods: str | None) -> tuple[str, ...] | None:
    if methods is None:
        return None
    asked = tuple(between_commas(methods))
    if unknown := [part for part in asked if part not in METHODS]:
        raise UsageError(
            f"--methods {methods}: unknown method {unknown[0]!r}",
            remedy=f"choose from {', '.join(METHODS)}",
        )
    if not asked:
        raise UsageError("--methods names no method", remedy=f"choose from {', '.join(METHODS)}")
    return asked


def _pools(existing: Plan | None) -> Uniform | None:
    """TensorFlow's own pools as the plan has them already."""
    section = existing.of(Threads) if existing else None
    return section.uniform if section else None


def _hosts(report: Horovod | None) -> tuple[str, ...]:
    """The nodes, in the order of their first ranks; one node needs no name."""
    ranks = sorted(report.ranks, key=lambda rank: rank.rank) if report else ()
    hosts = tuple(dict.fromkeys(rank.host for rank in ranks))
    return hosts if len(hosts) > 1 else ()
