"""`dltune plan`: decide from a profile. One planner each under it; `threads` when none is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.cli.plan_allreduce import command as allreduce
from dltune.cli.plan_io import command as io
from dltune.documents import plan as plan_document
from dltune.documents import profile as profile_document
from dltune.documents.files import claim
from dltune.errors import UsageError
from dltune.planners.threads import emit as emit_formats
from dltune.planners.threads.decide import STRATEGIES

if TYPE_CHECKING:
    from dltune.documents.machine import Machine
    from dltune.documents.plan import Plan
    from dltune.documents.profile import Profile
    from dltune.model.prediction import Model
    from dltune.planners.threads.decide import Decision
    from dltune.workload.anchor import Anchor
    from dltune.workload.workload import Workload

DEFAULT = "threads"


class _Planners(click.Group):
    """The planners; the default one when the first argument names none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        helps = ctx.help_option_names
        if args and args[0] not in self.commands and args[0] not in helps:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Planners)
def command() -> None:
    """Decide from a profile. Without a planner's name: threads."""


command.add_command(allreduce)
command.add_command(io)


@command.command(DEFAULT)
@click.argument("profile", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="[plan.json beside PROFILE]")
@click.option("--into", type=click.Path(path_type=Path), help="Put the section into this plan.")
@click.option("--strategy", type=click.Choice(STRATEGIES), default="auto", show_default=True)
@click.option("--machine", metavar="FILE|NAME", help="Plan for this machine, such as knl-7250.")
@click.option("--cores", metavar="N|LIST", help="Plan for N cores, or for these (0-3,8).")
@click.option(
    "--model",
    "model_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Take op times from this regression model (dltune model), not from the ops' own curves.",
)
@click.option("--bitwise", is_flag=True, help="Keep every op's thread count, so results stay.")
@click.option("--explain", metavar="OP", help="Why an op (key, part of it, or type) got its plan.")
@click.option("--emit", type=click.Choice(emit_formats.FORMATS), help="Settings for plain jobs.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
def threads(
    profile: Path,
    output: Path | None,
    into: Path | None,
    strategy: str,
    machine: str | None,
    cores: str | None,
    model_path: Path | None,
    bitwise: bool,
    explain: str | None,
    emit: str | None,
    as_json: bool,
    overwrite: bool,
) -> None:
    """Threads, placement and co-runs of each op.

    Simulates TensorFlow's own settings and the strategies on the profile's graph, prints what each
    is predicted to take, and writes the fastest.
    """
    if output and into:
        raise UsageError("-o and --into both name where the plan goes", remedy="give one of them")
    if as_json and emit:
        raise UsageError("--json and --emit both print to stdout", remedy="give one of them")
    found = profile_document.load(profile)
    existing = plan_document.load(into) if into else None
    target = into or output or profile.with_name("plan.json")
    if target.resolve() == profile.resolve():
        raise UsageError(f"{target} is the profile itself", remedy="choose another output")
    if model_path and machine:
        raise UsageError(
            "a regression model predicts one machine only, not --machine", remedy="leave one out"
        )
    with claim(target, overwrite=overwrite or into is not None) as file:
        model = _model(model_path, found, profile) if model_path else None
        there, made, anchored, decision, plan = _plan(
            found, machine, cores, strategy, bitwise, model
        )
        if existing:
            from dltune.planners.threads.document import other_settings, put_into

            plan = put_into(existing, plan)
            if warning := other_settings(existing, found):
                click.echo(warning, err=True)
        told = _explained(made, decision, explain)
        file.write(plan)
    for sentence in _sentences(found, made, anchored, decision):
        click.echo(sentence, err=True)
    if emit:
        click.echo(emit_formats.emit(emit, decision.best_uniform.uniform, there), nl=False)
    elif as_json:
        click.echo(_json(plan, anchored, target))
    else:
        _show(decision, made)
    for line in told:
        click.echo(line, err=bool(emit or as_json))
    click.echo(f"written to {target}: {decision.chosen.setting}", err=True)


def _plan(
    profile: Profile,
    name: str | None,
    cores: str | None,
    strategy: str,
    bitwise: bool,
    model: Model | None,
) -> tuple[Machine, Workload, Anchor, Decision, Plan]:
    from dltune.machine.known import find
    from dltune.planners.threads.decide import choose
    from dltune.planners.threads.document import document
    from dltune.planners.threads.target import restricted
    from dltune.workload.anchor import anchored
    from dltune.workload.transfer import transferred

    elsewhere = find(name) if name else None
    there = restricted(elsewhere or profile.machine, cores)
    made, anchor = anchored(profile, model)
    made = transferred(made, there)
    decision = choose(made, strategy, bitwise=bitwise)
    return there, made, anchor, decision, document(profile, there, decision.threads(made))


def _model(path: Path, profile: Profile, name: Path) -> Model:
    """The regression model of a file, for this profile's ops. Says what it does not cover."""
    from dltune.model.regression.file import load, require_fits
    from dltune.model.regression.predictor import Regression

    header, trained = load(path)
    require_fits(header, profile, path, name)
    model = Regression.on(trained, profile)
    if not model.predictions:
        samples = ", ".join(f"{threads} {placement}" for threads, placement in header.samples)
        raise UsageError(
            f"no op of {name} has what {path} predicts from: times at {samples}"
            + (f" with {', '.join(header.events)}" if header.events else ""),
            remedy="profile again as for the model's training",
        )
    click.echo(
        f"op times are from {path} ({header.regressor}, trained on {header.ops} ops), for "
        f"{len(model.predictions)} ops; {len(model.missing)} lack a sample and keep their own",
        err=True,
    )
    return model


def _explained(workload: Workload, decision: Decision, wanted: str | None) -> list[str]:
    from dltune.planners.threads.explain import explain

    return ["", *explain(workload, decision, wanted)] if wanted else []


def _json(plan: Plan, anchor: Anchor, target: Path) -> str:
    import msgspec

    section = plan.threads
    assert section is not None  # made above
    table = {
        "output": str(target),
        "machine": plan.machine_name,
        "cores": plan.cores,
        "strategy": section.strategy,
        "uniform": section.uniform,
        "ops": len(section.ops),
        "overhead": anchor.overhead,
        "scale": anchor.scale,
        "predictions": section.predictions,
    }
    return msgspec.json.format(msgspec.json.encode(table), indent=2).decode()


def _show(decision: Decision, workload: Workload) -> None:
    from dltune.cli.tables import table

    section = decision.threads(workload)
    rows = [
        (
            found.setting,
            f"{found.seconds * 1e3:.1f}",
            f"{found.speedup:.3f}",
            f"{found.corunning:.2f}",
            "planned" if found.setting == section.strategy else "",
        )
        for found in section.predictions
    ]
    table(
        "predicted time of a step",
        ("setting", ">ms", ">speed-up over recommended", ">ops in flight", ""),
        rows,
    )


def _sentences(
    profile: Profile, workload: Workload, anchor: Anchor, decision: Decision
) -> list[str]:
    """What the predictions rest on."""
    own = profile.settings
    found = [] if profile.partial is None else [f"this profile is partial: {profile.partial}"]
    if anchor.span:
        found.append(
            f"tied to the job's own run (intra-op {own.intra}, inter-op {own.inter}: "
            f"{anchor.span * 1e3:.1f} ms from first op to last) by {anchor.overhead * 1e6:.2f} us "
            f"an op and a factor of {anchor.scale:.3f} on op times"
        )
    if anchor.doubtful:
        found.append(
            "ops took very different times in the job and one by one, as when something else runs "
            "on the machine: these predictions are doubtful, profile again when it is quiet"
        )
    return [*found, *workload.remarks, *decision.remarks]
