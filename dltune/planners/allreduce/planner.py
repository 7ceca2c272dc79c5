"""The planner of Horovod's allreduce, as the registry knows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from dltune.documents.plan import Plan
from dltune.documents.sections import allreduce
from dltune.documents.sections.allreduce import AllreducePlan, Controller
from dltune.documents.sections.threads import Threads, Uniform
from dltune.errors import UsageError
from dltune.planners.enforcement import Enforcement, Run
from dltune.planners.planner import Decision, Planner
from dltune.planners.shown import Part, Shown
from dltune.words import between_commas

if TYPE_CHECKING:
    from dltune.documents.horovod import Horovod

# as in decide.py, which is imported only when there is something to decide
METHODS = ("scp", "topo", "nbcs", "gs", "yield", "rest", "knobs")
ORDERS = ("topo", "tac")


class AllreducePlanner(Planner[AllreducePlan]):
    name = "allreduce"
    summary = "Cores, tensor order, sleeps and knobs of a Horovod job."
    section = AllreducePlan
    after = ("settings",)
    formats = ("horovodrun-yaml", "rankfile", "env")

    def faults(self, section: AllreducePlan, plan: Plan) -> Iterator[str]:
        return allreduce.faults(section, plan.cores)

    def parameters(self) -> Sequence[click.Parameter]:
        path, count = click.Path(path_type=Path), click.IntRange(min=1)
        methods = f"Plan these, whatever they bring: of {','.join(METHODS)}."
        return [
            click.Argument(["profile"], type=path),
            click.Argument(["report"], type=path, required=False),
            click.Option(
                ["--methods"], metavar="LIST", help=f"{methods}  [those predicted to help]"
            ),
            click.Option(
                ["--order"],
                type=click.Choice(ORDERS),
                default="topo",
                show_default=True,
                help="Of bins: by the graph, or by what waits for each gradient (TicTac).",
            ),
            click.Option(["--ranks"], type=count, help="Ranks of the job.  [as reported]"),
            click.Option(["--local"], type=count, help="Ranks of a node.  [as reported]"),
            click.Option(
                ["--controller"], type=click.Choice(get_args(Controller)), help="[as reported]"
            ),
            click.Option(
                ["--measured"],
                type=path,
                multiple=True,
                metavar="REPORT",
                help="A report of the job under other settings; the fastest is planned. May be "
                "repeated.",
            ),
            click.Option(["--explain"], is_flag=True, help="Say which tensors share a bin."),
        ]

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[AllreducePlan]:
        """From a profile of the parallel job, and a REPORT of dltune horovod-report on it."""
        return _decide(existing, **parameters)

    def places_threads(self, section: AllreducePlan) -> bool:
        return True

    def enforce(self, section: AllreducePlan, run: Run) -> Enforcement:
        from dltune.planners.allreduce.enforce import EnforcedAllreduce

        return EnforcedAllreduce(section, run)

    def show(self, section: AllreducePlan, plan: Plan, beside: Sequence[msgspec.Struct]) -> Shown:
        from dltune.planners.allreduce.show import shown

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
    from dltune.documents import files
    from dltune.documents import horovod as horovod_document
    from dltune.documents import profile as profile_document
    from dltune.planners.allreduce import measured as measurements
    from dltune.planners.allreduce.calls import calls
    from dltune.planners.allreduce.decide import Search, applicable
    from dltune.planners.allreduce.exports import export
    from dltune.planners.allreduce.model import Model
    from dltune.planners.allreduce.observed import basis
    from dltune.planners.allreduce.show import bins, predictions

    asked = _asked(methods)
    found = profile_document.load(profile)
    seen = horovod_document.load(report) if report else None
    others = [(path, horovod_document.load(path)) for path in measured]
    known = basis(found, seen, report, ranks=ranks, local=local, controller=controller)
    chosen, cannot = applicable(asked, known.controller, needs=seen is not None)
    reducing = calls(found)
    search = Search(Model(found, reducing, known), found.machine, _pools(existing), order)
    digest = files.digest(seen) if seen else ""
    section, name = search.plan(chosen, forced=asked is not None, report=digest)
    if others:
        if seen is None:
            raise UsageError("--measured compares with the job's report", remedy="give it")
        compared = measurements.measured(others, seen)
        section = measurements.settled(section, compared, chosen, found.machine)
    reasons = (*section.reasons, *cannot)
    if seen is not None and seen.partial:
        reasons += ("the report is partial: the job was not watched to its end",)
    section = msgspec.structs.replace(section, reasons=reasons)
    return Decision(
        section,
        found.machine,
        found,
        choice=name,
        remarks=section.reasons,
        shown=Shown([Part("methods", "", [predictions(section, name)])]),
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
        raise UsageError(f"--methods {methods}: {unknown[0]!r} is none of {', '.join(METHODS)}")
    if not asked:
        raise UsageError("--methods names none", remedy=f"choose of {', '.join(METHODS)}")
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
