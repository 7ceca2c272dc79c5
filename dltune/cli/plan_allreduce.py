"""`dltune plan allreduce`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from dltune.cli.comma_list import parts
from dltune.documents.sections.allreduce import Controller
from dltune.errors import UsageError

if TYPE_CHECKING:
    from dltune.documents.horovod import Horovod
    from dltune.documents.profile import Profile
    from dltune.documents.sections.allreduce import AllreducePlan, RankThreads
    from dltune.planners.allreduce.calls import Call

# as in dltune.planners.allreduce, which is imported only when it is called
METHODS = ("scp", "topo", "nbcs", "gs", "yield", "rest", "knobs")
FORMATS = ("horovodrun-yaml", "rankfile", "env")


@click.command("allreduce")
@click.argument("profile", type=click.Path(path_type=Path))
@click.argument("report", type=click.Path(path_type=Path), required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="[plan.json beside PROFILE]")
@click.option("--into", type=click.Path(path_type=Path), help="Put the section into this plan.")
@click.option(
    "--methods",
    metavar="LIST",
    help=f"Plan these, whatever they bring: of {','.join(METHODS)}.  [those predicted to help]",
)
@click.option("--ranks", type=click.IntRange(min=1), help="Ranks of the job.  [as reported]")
@click.option("--local", type=click.IntRange(min=1), help="Ranks of a node.  [as reported]")
@click.option("--controller", type=click.Choice(get_args(Controller)), help="[as reported]")
@click.option(
    "--measured",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="REPORT",
    help="A report of the job under other settings; the fastest is planned. May be repeated.",
)
@click.option("--emit", type=click.Choice(FORMATS), help="Print what launchers read.")
@click.option("--explain", is_flag=True, help="Say which tensors share a bin.")
@click.option("--json", "as_json", is_flag=True, help="Print the section as JSON.")
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
def command(
    profile: Path,
    report: Path | None,
    output: Path | None,
    into: Path | None,
    methods: str | None,
    ranks: int | None,
    local: int | None,
    controller: Controller | None,
    measured: tuple[Path, ...],
    emit: str | None,
    explain: bool,
    as_json: bool,
    overwrite: bool,
) -> None:
    """Cores, tensor order, sleeps and knobs of a Horovod job.

    From a profile of the parallel job, and a REPORT of dltune horovod-report on it.
    """
    import msgspec

    from dltune.documents import files
    from dltune.documents import horovod as horovod_document
    from dltune.documents import plan as plan_document
    from dltune.documents import profile as profile_document
    from dltune.planners.allreduce import measured as measurements
    from dltune.planners.allreduce.calls import calls
    from dltune.planners.allreduce.decide import Planner, applicable
    from dltune.planners.allreduce.document import basis, document
    from dltune.planners.allreduce.exports import export
    from dltune.planners.allreduce.model import Model

    if output and into:
        raise UsageError("-o and --into both name where the plan goes", remedy="give one of them")
    if as_json and emit:
        raise UsageError("--json and --emit both print to stdout", remedy="give one of them")
    asked = _asked(methods)
    found = profile_document.load(profile)
    seen = horovod_document.load(report) if report else None
    others = [(path, horovod_document.load(path)) for path in measured]
    existing = plan_document.load(into) if into else None
    target = into or output or profile.with_name("plan.json")
    for path in (profile, report):
        if path and target.resolve() == path.resolve():
            raise UsageError(f"{target} is what the plan is made from", remedy="choose another")
    with files.claim(target, overwrite=overwrite or into is not None) as file:
        known = basis(found, seen, report, ranks=ranks, local=local, controller=controller)
        chosen, cannot = applicable(asked, known.controller, needs=seen is not None)
        reducing = calls(found)
        planner = Planner(Model(found, reducing, known), found.machine, _threads(existing))
        digest = files.digest(seen) if seen else ""
        section, name = planner.plan(chosen, forced=asked is not None, report=digest)
        if others:
            if seen is None:
                raise UsageError("--measured compares with the job's report", remedy="give it")
            compared = measurements.measured(others, seen)
            section = measurements.settled(section, compared, chosen, found.machine)
        partial = (found.partial or "") and f"the profile is partial: {found.partial}"
        cut = "the report is partial: the job was not watched to its end"
        told = tuple(
            sentence
            for sentence in (*cannot, partial, seen is not None and seen.partial and cut)
            if sentence
        )
        section = msgspec.structs.replace(section, reasons=(*section.reasons, *told))
        exported = export(emit, section, found.machine, _hosts(seen)) if emit else ""
        file.write(document(section, found, existing))
    for reason in section.reasons:
        click.echo(reason, err=True)
    if emit:
        click.echo(exported, nl=False)
    elif as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(section), indent=2).decode())
    else:
        _show(section, name)
    if explain:
        for line in _bins(section, found, reducing):
            click.echo(line, err=bool(emit or as_json))
    click.echo(f"written to {target}: {name}", err=True)


def _asked(methods: str | None) -> tuple[str, ...] | None:
    if methods is None:
        return None
    asked = tuple(parts(methods))
    if unknown := [part for part in asked if part not in METHODS]:
        raise UsageError(
            f"--methods {methods}: {unknown[0]!r} is none of {', '.join(METHODS)}",
        )
    if not asked:
        raise UsageError("--methods names none", remedy=f"choose of {', '.join(METHODS)}")
    return asked


def _threads(existing: object) -> RankThreads | None:
    from dltune.documents.plan import Plan
    from dltune.documents.sections.allreduce import RankThreads

    if not isinstance(existing, Plan) or existing.threads is None:
        return None
    return RankThreads(existing.threads.uniform.intra, existing.threads.uniform.inter)


def _hosts(report: Horovod | None) -> tuple[str, ...]:
    """The nodes, in the order of their first ranks; one node needs no name."""
    ranks = sorted(report.ranks, key=lambda rank: rank.rank) if report else ()
    hosts = tuple(dict.fromkeys(rank.host for rank in ranks))
    return hosts if len(hosts) > 1 else ()


def _show(section: AllreducePlan, name: str) -> None:
    from dltune.cli.tables import table

    original = section.predictions[0].seconds
    rows = [
        (
            found.method,
            f"{found.seconds * 1e3:.1f}",
            f"{original / found.seconds:.2f}" if found.seconds else "",
            f"{found.background:.1%}",
            "planned" if found.method == name else "",
        )
        for found in section.predictions
    ]
    table(
        "predicted step of the job",
        ("method", ">ms", ">speed-up", ">background thread, of a core", ""),
        rows,
    )


def _bins(section: AllreducePlan, profile: Profile, calls: Sequence[Call]) -> list[str]:
    """Each bin's tensors by name, and when the profiled step had them."""
    lines = []
    for order in section.orders or ():
        call = next(c for c in calls if tuple(g.shape for g in c.gradients) == order.shapes)
        nodes = profile.steps[call.step].nodes
        bins = "1 bin" if len(order.bins) == 1 else f"{len(order.bins)} bins"
        lines.append(f"{call.scope}: {len(call.gradients)} gradients in {bins}")
        for number, bin_ in enumerate(order.bins):
            lines.append(f"  bin {number}: {bin_.bytes} bytes")
            for place in bin_.tensors:
                gradient = call.gradients[place]
                start = nodes[gradient.node].start
                there = "" if start is None else f", there after {start * 1e3:.1f} ms"
                shape = ",".join(map(str, gradient.shape))
                lines.append(f"    {place}: {gradient.dtype}[{shape}] {gradient.name}{there}")
    return lines
