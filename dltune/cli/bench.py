"""`dltune bench`."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.base.errors import JobFailed, UsageError
from dltune.base.formatting import between_commas
from dltune.cli.options import JOB, PATH, example, wait_option

if TYPE_CHECKING:
    from dltune.cli.terminal import Line
    from dltune.schemas.bench import Bench
    from dltune.turns.rounds import Progress


@click.command(
    "bench", epilog=example("dltune bench --plan plan.json -o bench.json -- python train.py")
)
@click.option(
    "--plan",
    "plan_path",
    type=PATH,
    required=True,
    help="Measure this plan, and print its predictions next to the results.",
)
@click.option(
    "--against",
    metavar="NAMES",
    help="Measure these settings, separated by commas: as-found (the script's own), default (the "
    "framework's), recommended, uniform (the best pair in the plan), plan, 1core, and AxB "
    "(intra-op A, inter-op B).  [default: default,recommended,uniform,plan; as-found replaces "
    "uniform if the plan has no thread counts; as-found,plan if the plan only orders transfers]",
)
@click.option(
    "--one-core/--no-one-core",
    default=True,
    help="Measure one core too, for parallel efficiency.",
    show_default=True,
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Measure N rounds; a 95 % interval needs at least 6.",
)
@click.option(
    "--seconds-per-turn",
    type=click.FloatRange(min=0.0),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Let a turn take about SECONDS, and at least 3 steps.",
)
@wait_option("a job")
@click.option("-o", "--output", type=PATH, help="Write the results to this file, as JSON.")
@click.option("--pyperf", type=PATH, help="Write the time of each step to this file, for pyperf.")
@click.option("--overwrite", is_flag=True, help="Replace existing output files.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@click.option("--verbose", is_flag=True, help="Print the output of the jobs to stderr.")
@JOB
def command(
    plan_path: Path,
    against: str | None,
    one_core: bool,
    rounds: int,
    seconds_per_turn: float,
    wait: float,
    output: Path | None,
    pyperf: Path | None,
    overwrite: bool,
    as_json: bool,
    verbose: bool,
    job: tuple[str, ...],
) -> None:
    """Compare a plan with other settings of an unmodified job.

    dltune starts the job once for each setting. The jobs then take turns of a few steps each, so
    that disturbances of the machine affect all settings alike. All jobs are in memory at the same
    time; dltune stops them after the last round.
    """
    from dltune.bench import step_times
    from dltune.bench.contestants import ONE_CORE, settings, usual
    from dltune.bench.runner import Runner, compete
    from dltune.bench.step_times import assemble
    from dltune.cli import results, terminal
    from dltune.job.launch import require_enabled
    from dltune.plan.plan import load_plan, observers, places_threads
    from dltune.plan.settings.choices import applied
    from dltune.report.kinds.bench import view
    from dltune.schemas.settings import SettingsPlan
    from dltune.system import topology
    from dltune.turns.barrier import HungError
    from dltune.turns.rounds import HUNG_REMEDY, MORE_STEPS, Rounds

    if not job:
        raise UsageError(
            "the command of the job is missing",
            remedy="add it after --: dltune bench --plan plan.json -- python train.py",
        )
    require_enabled()
    if pyperf:
        step_times.require_pyperf()
    if output and pyperf and output.resolve() == pyperf.resolve():
        raise UsageError("-o and --pyperf name the same file", remedy="choose two file names")
    results.require_apart([plan_path], (output, pyperf))
    plan = load_plan(plan_path)
    machine = topology.local()
    asked = against or ",".join(usual(plan))
    names = between_commas(asked)
    if one_core and ONE_CORE not in names:
        names.append(ONE_CORE)
    around = applied(plan.of(SettingsPlan), machine, job, os.environ, placed=places_threads(plan))
    runners = [Runner(s, machine, plan) for s in settings(names, plan, machine, around)]
    ended: terminal.Ended | None = None
    with contextlib.ExitStack() as stack:
        stack.enter_context(terminal.reported())
        file = stack.enter_context(results.claimed(output, overwrite=overwrite))
        raw = stack.enter_context(results.claimed(pyperf, overwrite=overwrite))
        line = stack.enter_context(terminal.line())

        def keep() -> Bench:
            made = assemble(series, plan=plan, machine=machine, command=job)
            if file:
                file.write(made)
            return made

        series = Rounds(
            runners,
            rounds=rounds,
            seconds=seconds_per_turn,
            patience=wait,
            tell=lambda told: _show_progress(line, told, rounds),
            keep=keep,
        )
        line.say(f"starting {len(runners)} jobs, one for each setting: {', '.join(names)}")
        measured = {"threads", "settings", *observers(plan, in_force=True)}
        for section in [name for name in plan.sections if name not in measured]:
            line.say(
                f"bench does not measure the section {section} of the plan; dltune run applies it"
            )
        for sentence in around.left:
            line.say(f"setting not applied: {sentence}")
        try:
            compete(series, job, verbose=verbose, say=line.say)
        except terminal.Ended as signalled:
            if not any(series.turns.values()):
                line.say("no turn was completed")
                raise
            ended = signalled
            line.say(f"stopped by {ended}; the completed turns are kept")
        for fault in (fault for runner in runners for fault in runner.faults):
            line.say(f"not applied under the plan: {fault}")
        bench = keep()
        if raw:
            raw.write_bytes(_raw(bench, plan_path))
    results.tell(bench, view, as_json=as_json, written=(output, pyperf))
    if ended:
        sys.exit(ended.exit_code)
    if series.fault is None:
        return
    kept = "the completed turns are kept"
    if isinstance(series.fault, HungError):
        raise UsageError(f"{bench.partial}; {kept}", remedy=HUNG_REMEDY)
    if code := series.fault.job.exit_code:
        raise JobFailed(f"{bench.partial}; {kept}", code)
    if not all(series.turns.values()):
        raise UsageError(
            f"{bench.partial}, before each setting had a turn; {kept}", remedy=MORE_STEPS
        )


def _show_progress(line: Line, told: Progress, rounds: int) -> None:
    if not told.round:
        line.show(told.phase, (told.phase,))
        return
    left = f", about {told.left:.0f} s left" if told.left is not None else ""
    line.show(f"round {told.round} of {rounds}: {told.phase}{left}", (told.round,))


def _raw(bench: Bench, plan: Path) -> bytes:
    from dltune.bench.step_times import encode

    return encode(
        {s.name: [turn.steps for turn in s.turns] for s in bench.settings if s.turns},
        cpu_model=bench.machine.name,
        cores=len(bench.machine.cores),
        framework=bench.framework.title,
        plan=plan.name,
        command=bench.command,
    )
