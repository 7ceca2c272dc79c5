"""`dltune run`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.errors import JobFailed, UsageError

if TYPE_CHECKING:
    from dltune.documents.machine import Machine
    from dltune.documents.plan import OpPlan, Plan
    from dltune.job.launch import Job
    from dltune.planners.allreduce.rank_outcome import RankOutcome
    from dltune.planners.settings.applied import Applied
    from dltune.planners.settings.enforce import Acted
    from dltune.planners.threads.enforce import Outcome


@click.command("run")
@click.option(
    "--plan",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    help="The plan to enforce, made by dltune plan.",
)
@click.option("--partial", is_flag=True, help="Run what still applies of a plan that does not fit.")
@click.option("--dry-run", is_flag=True, help="Tell what would be enforced; start nothing.")
@click.option("--json", "as_json", type=click.Path(path_type=Path), help="Write the outcome here.")
@click.option("--overwrite", is_flag=True, help="Replace an existing outcome file.")
@click.argument("job", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")
def command(
    path: Path,
    partial: bool,
    dry_run: bool,
    as_json: Path | None,
    overwrite: bool,
    job: tuple[str, ...],
) -> None:
    """Run an unmodified job with a plan enforced: threads and cores of each op, and its co-runs;
    cores, bins and sleeps of Horovod's background thread; the settings that dltune tune chose.

    The job's own output and exit code are passed on; a summary goes to stderr at the end. Under
    another thread count an op adds its floats in another order, as it does under TensorFlow's own
    thread setting: results agree to rounding, and bit for bit under `dltune plan --bitwise`.
    """
    import contextlib
    import tempfile

    from dltune.cli import interrupts
    from dltune.documents import plan as documents
    from dltune.documents.files import Output, claim
    from dltune.io.follow.start import followed
    from dltune.job.launch import Job
    from dltune.machine import topology
    from dltune.planners.allreduce.enforce import Ranks
    from dltune.planners.settings.applied import applied
    from dltune.planners.settings.enforce import Settings
    from dltune.planners.threads.enforce import Session
    from dltune.planners.threads.fitted import require_machine, threads_of

    plan = documents.load(path)
    if plan.io is None and plan.allreduce is None and plan.settings is None:
        threads_of(plan)
    machine = topology.local()
    if not partial:
        require_machine(plan, machine)
    around = applied(plan, machine, job, os.environ, partial=partial)
    if dry_run:
        _show_intent(plan, machine)
        _show_settings(around, click.echo)
        return
    if not job:
        raise UsageError(
            "no command to run",
            remedy="give it after --: dltune run --plan PLAN -- python train.py",
        )
    with contextlib.ExitStack() as stack:
        # until there is a job to pass signals on to, and while what is left of it is ended
        stack.enter_context(interrupts.reported())
        file: Output | None = None
        if as_json:
            file = stack.enter_context(claim(as_json, overwrite=overwrite))
        environment = {"DLTUNE_PLAN": str(path.resolve())}
        ranks: Ranks | None = None
        session: Session | None = None
        if plan.allreduce is not None:
            ranks = Ranks(plan, machine, partial=partial, say=_say)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dltune-")))
            environment |= ranks.environment(job, folder)
        settings = Settings(around, machine, _say)
        own: Session | Ranks | None = ranks
        if plan.threads is not None:
            own = session = Session(plan, machine, partial=partial, say=_say, ranks=ranks)
        elif not ranks and not around.choices:  # nothing to do in the job's Python
            environment["DLTUNE_DISABLE"] = "1"
        _show_settings(around, _say)
        running = stack.enter_context(
            Job(
                around.command(job),
                answer=lambda python: settings.answer(python, own.answer if own else None),
                greet=own.greet if own else settings.greet,
                heard=settings.hear,
                environment={**environment, **around.environment({**os.environ, **environment})},
            )
        )
        stack.enter_context(interrupts.heard(lambda number, _: running.pass_on(number)))
        outcomes: list[Outcome] = []
        ranked: list[RankOutcome] = []
        with followed(plan.io, running.pid, _say):
            if session:
                outcomes = session.run(running)
                ranked = ranks.outcomes(running.exit_code) if ranks else []
            elif ranks:
                ranked = ranks.run(running)
            else:
                _plain(running)
        code = running.exit_code
        acted = settings.outcome(code)
    for outcome in outcomes:
        _show(outcome, plan)
    for rank in ranked:
        _show_rank(rank)
    for hook in acted:
        _show_hook(hook)
    if file:
        import msgspec

        document = {
            "schema": "dltune.outcome/1",
            "processes": outcomes,
            "ranks": ranked,
            "settings": {
                "applied": around.choices,
                "left": around.left,
                "acted": acted,
                "not_in_force": settings.faults,
            },
        }
        file.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
    if code:
        cause = ranks.cause() if ranks else None
        raise JobFailed(
            f"the job ended with exit code {code}" + (f": {cause}" if cause else ""), code
        )


def _plain(job: Job) -> None:
    """A job without the plugin, until it ends."""
    for _ in job.events(1.0):
        pass


def _say(text: str) -> None:
    click.echo(f"dltune: {text}", err=True)


def _show_intent(plan: Plan, machine: Machine) -> None:
    from dltune.cli.tables import table
    from dltune.planners.allreduce.rank_outcome import intent
    from dltune.planners.threads.fitted import Handling, fit

    for file in plan.io.files if plan.io else ():
        does = {"ahead": f"hints {file.ahead} bytes ahead of the job", "whole": "read once, whole"}
        click.echo(f"{file.path}: {does[file.follow] if file.follow else 'left alone'}")
    if plan.allreduce:
        for line in intent(plan.allreduce, machine):
            click.echo(f"Horovod: {line}")
    if plan.threads is None:
        return
    fitted = fit(plan, machine, plan.allreduce.threads if plan.allreduce else None)
    section = fitted.section
    click.echo(
        f"{section.strategy}: TensorFlow's own pools get intra-op {fitted.uniform.intra}, "
        f"inter-op {fitted.uniform.inter}; {len(section.ops)} op keys have entries"
    )
    if section.corun:
        threads = " and of strategy 4" if section.hyperthreads else ""
        click.echo(f"ops are admitted by strategy 3{threads}")
    if not section.ops:
        return
    placed = fitted.orders(1, plan.signatures).ops

    def row(op: OpPlan) -> tuple[str, str, str, str]:
        handling = fitted.handling(op)
        happens = {
            Handling.PLACED: ",".join(map(str, placed[op.key][1])) if op.key in placed else "",
            Handling.ADMITTED: "when admitted",
            Handling.SMALL: f"left alone, below {section.small:g} s",
            Handling.DROPPED: "left alone, its cores are not here",
        }[handling]
        enforced = handling in (Handling.PLACED, Handling.ADMITTED)
        return (
            op.key if len(op.key) < 80 else op.key[:79] + "…",
            str(op.threads) if enforced else "-",
            happens,
            f"{op.seconds * 1e3:.3f}",
        )

    rows = [row(op) for op in sorted(section.ops, key=lambda op: -op.seconds)]
    table("", ("op", ">threads", "cores", ">predicted ms"), rows)


def _show_settings(around: Applied, say: Callable[[str], None]) -> None:
    from dltune.planners.settings.space import by_name

    if around.choices:
        say(f"settings: {', '.join(map(str, around.choices))}")
    lossy = [str(c) for c in around.choices if by_name(c.setting).kind == "lossy"]
    if lossy:
        say(f"lossy, which changes what the job computes: {', '.join(lossy)}")
    for sentence in around.left:
        say(f"setting not applied: {sentence}")


def _show_hook(hook: Acted) -> None:
    none = " (no effect)" if not hook.count else ""
    _say(f"{hook.setting}={hook.value}: {hook.did}{none}")
    for sentence in hook.left:
        _say(f"  left alone: {sentence}")


def _show_rank(rank: RankOutcome) -> None:
    for sentence in rank.enforced:
        _say(f"rank {rank.rank}: {sentence}")
    for sentence in rank.left:
        _say(f"rank {rank.rank}: not enforced: {sentence}")


def _show(outcome: Outcome, plan: Plan) -> None:
    who = f"rank {outcome.rank}" if outcome.rank is not None else f"pid {outcome.pid}"
    section = plan.threads
    assert section is not None
    predicted = {p.setting: p.seconds for p in section.predictions}.get(section.strategy)
    text = f"{who}: {outcome.steps} steps, median {outcome.median * 1e3:.1f} ms"
    text += f" (spread {outcome.spread:.0%})"
    if predicted and outcome.rank is None:
        text += f", predicted {predicted * 1e3:.1f} ms"
    _say(text)
    planned = len(outcome.met) + len(outcome.unmet)
    if planned:
        _say(f"{who}: {len(outcome.met)} of {planned} planned ops were met")
        for key in outcome.unmet[:5]:
            _say(f"  not met: {key}")
        if len(outcome.unmet) > 5:
            _say(f"  and {len(outcome.unmet) - 5} more")
    else:
        _say(f"{who}: the plan is one setting for all ops ({section.strategy})")
    if outcome.overhead is not None:
        _say(f"{who}: dltune's own bookkeeping took {outcome.overhead:.2%} of a step")
    asked = [
        f"{name} {asked} -> {given}"
        for name, asked, given in zip(
            ("intra-op", "inter-op"),
            outcome.overridden,
            (section.uniform.intra, section.uniform.inter),
            strict=True,
        )
        if asked
    ]
    if asked:
        _say(f"{who}: the script's own settings were overridden: {', '.join(asked)}")
    if section.corun:
        _say(f"{who}: {outcome.in_flight:.2f} ops in flight on average")
    for a, b in outcome.avoided:
        _say(f"{who}: these disturb each other and no longer run together: {a} | {b}")
