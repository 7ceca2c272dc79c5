"""`dltune tune`."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dltune.base.errors import UsageError
from dltune.base.formatting import between_commas
from dltune.cli.options import JOB, PATH, example, wait_option
from dltune.cli.results import require_apart, tell
from dltune.plan.duration import Duration, duration_in_words

if TYPE_CHECKING:
    from dltune.schemas.bench import Trial
    from dltune.schemas.machine import Machine
    from dltune.schemas.plan import Plan
    from dltune.schemas.settings import SettingsPlan
    from dltune.tune.evaluation import Measured
    from dltune.tune.search import Search

# below this share of the time in steps as long as most it is said that others take the rest
TYPICAL = 0.5


@click.command("tune", epilog=example("dltune tune --budget 10m -- python train.py"))
@click.option("-o", "--output", type=PATH, help="Write the plan to this file (default: plan.json).")
@click.option("--into", type=PATH, help="Add the chosen settings to this plan.")
@click.option(
    "--budget",
    type=Duration(),
    default="10m",
    show_default=True,
    help="Search for at most this long, for example 90s, 10m or 1h.",
)
@click.option(
    "--allow",
    type=click.Choice(("exact", "rounding", "lossy")),
    default="rounding",
    show_default=True,
    help="Allow settings up to this class: same bits, same mathematics, or less precision.",
)
@click.option(
    "--profile",
    "profile_path",
    type=PATH,
    help="Try first the settings that this profile of the job suggests.",
)
@click.option(
    "--only", metavar="NAMES", default="", help="Try only these settings (comma-separated)."
)
@click.option(
    "--without", metavar="NAMES", default="", help="Skip these settings (comma-separated)."
)
@click.option("--resume", is_flag=True, help="Continue a search that was not finished.")
@wait_option("the job")
@click.option("--explain", is_flag=True, help="Describe each setting and print every round.")
@click.option("--overwrite", is_flag=True, help="Replace the plan and a saved search.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan's settings as JSON.")
@click.option("--verbose", is_flag=True, help="Show the jobs' own output on stderr.")
@JOB
def command(
    output: Path | None,
    into: Path | None,
    budget: float,
    allow: str,
    profile_path: Path | None,
    only: str,
    without: str,
    resume: bool,
    wait: float,
    explain: bool,
    overwrite: bool,
    as_json: bool,
    verbose: bool,
    job: tuple[str, ...],
) -> None:
    """Find the settings that make an unmodified training job fastest.

    dltune starts the job with different settings. The candidates run a few steps in turns with the
    best candidate so far, and dltune keeps the settings that are proven to help. At the end it
    compares the choice with the job as found, in new rounds. It changes none of your files.
    """
    from dltune.base.documents import claim
    from dltune.cli import terminal, tune_display
    from dltune.job.launch import require_enabled
    from dltune.plan.plan import merge_section, names_ops
    from dltune.plan.settings.setting import Circumstances
    from dltune.system import topology
    from dltune.tune import result
    from dltune.tune.candidates import offer
    from dltune.tune.evaluation import Measured
    from dltune.tune.result import section
    from dltune.tune.search import Search

    if not job:
        raise UsageError(
            "no command to tune", remedy="add it after --: dltune tune -- python train.py"
        )
    require_enabled()
    if output and into:
        raise UsageError("-o and --into cannot be combined", remedy="use one of them")
    target = into or output or Path("plan.json")
    require_apart([profile_path], [target])
    machine = topology.local()
    existing = _existing(into, machine) if into else None
    here = Circumstances(machine, job, dict(os.environ))
    offered = offer(
        here,
        allow=allow,  # type: ignore[arg-type]
        only=between_commas(only),
        without=between_commas(without),
        first=_advised(profile_path) if profile_path else (),
        same_graph=existing is not None and names_ops(existing),
    )
    at = result.beside(target)
    if at.exists() and not (resume or overwrite):
        raise UsageError(
            f"{at} holds a search that was not finished",
            remedy="use --resume to continue it, or --overwrite to start again",
        )
    past = result.taken_up(at, here, offered) if resume else None
    before = past.spent if past else 0.0
    if before >= budget:
        raise UsageError(
            f"budget too small: the search has already used {duration_in_words(before)} of "
            f"{duration_in_words(budget)}",
            remedy="use a larger budget, for example --budget "
            f"{duration_in_words(before + budget)}",
        )
    partial: str | None = None
    ended: terminal.Ended | None = None
    with contextlib.ExitStack() as stack:
        stack.enter_context(terminal.reported())
        replace = overwrite or into is not None or (resume and _is_of_settings_alone(target))
        file = stack.enter_context(claim(target, overwrite=replace))
        state = result.State(stack.enter_context(claim(at, overwrite=True)), here, offered)
        view = stack.enter_context(tune_display.shown(job))
        evaluator = Measured(
            here,
            budget=budget - before,
            patience=wait,
            verbose=verbose,
            framework=past.framework if past else None,
            tell=view.waits_for,
        )
        search = Search(
            evaluator,
            offered.options,
            offered.recommended,
            past=past.trials if past else (),
            tell=view.progress,
        )

        def keep(trial: Trial) -> None:
            view.trial(trial)
            state.write(search.known, budget - evaluator.left(), evaluator.framework)

        search.keep = keep
        try:
            with evaluator:
                _run(search, evaluator, budget)
        except terminal.Ended as signalled:
            if not search.trials:
                click.echo("dltune: interrupted before the first trial ended", err=True)
                raise
            ended, partial = signalled, "interrupted"
        found = section(
            search,
            command=job,
            untried=offered.untried,
            seconds=budget - evaluator.left(),
            partial=partial,
        )
        file.write(
            merge_section(existing, "settings", found, machine, framework=evaluator.framework)
        )
        if partial is None and not search.exhausted:
            state.remove()
    tell(found, tune_display.view, as_json=as_json, written=())
    if (share := evaluator.typical_share) < TYPICAL:
        click.echo(
            f"note: typical steps account for only {share:.0%} of the run time; the ratios ignore "
            "the rest. `dltune diagnose` shows what it is.",
            err=True,
        )
    if explain:
        for line in ("", *tune_display.explain(found, search.trials)):
            click.echo(line, err=as_json)
    goes_on = "--resume" + (f" --into {shlex.quote(str(into))}" if into else "")
    _show_next(target, at, found, job, goes_on if partial or search.exhausted else "")
    if ended:
        sys.exit(ended.exit_code)


def _run(search: Search, evaluator: Measured, budget: float) -> None:
    """Raises a DltuneError when the job cannot be measured, or not within the budget."""
    from dltune.tune.search import BudgetTooSmallError, NothingToMeasureError

    try:
        search.run()
    except NothingToMeasureError as error:
        raise evaluator.error or UsageError(str(error), remedy=None) from None
    except BudgetTooSmallError as error:
        # half as much again, because the next start can meet a busier machine
        enough = 60 * -(-1.5 * (budget + error.needed) // 60)
        raise UsageError(
            f"budget too small: {duration_in_words(budget)} does not suffice for one trial of this "
            "job and the final rounds",
            remedy=f"use --budget {duration_in_words(enough)} or more",
        ) from None


def _is_of_settings_alone(target: Path) -> bool:
    """True if it is the result of a search, which a resumed search replaces. Raises UsageError for
    a plan that has more."""
    from dltune.plan.plan import load_plan

    if not target.exists():
        return False
    if more := [name for name in load_plan(target).sections if name != "settings"]:
        raise UsageError(
            f"{target} has other sections than settings: {', '.join(more)}",
            remedy=f"use --into {target} to keep them, or --overwrite to replace the plan",
        )
    return True


def _existing(into: Path, machine: Machine) -> Plan:
    """Raises UsageError when it is for another machine, or its threads are for graphs that other
    settings than its own would change."""
    from dltune.plan.plan import load_plan, require_fitting, require_machine

    plan = load_plan(into)
    require_machine(plan, machine)
    require_fitting(plan, "settings", None)
    return plan


def _advised(path: Path) -> list[str]:
    """Names of settings that a profile speaks for."""
    from dltune.analysis.roofline import analyse
    from dltune.findings.evidence import Evidence
    from dltune.findings.rule import apply_rules
    from dltune.schemas import profile as documents

    found = apply_rules(Evidence(profile=analyse(documents.load(path))))
    # findings without a known gain come first: too many threads can cost several x
    first = sorted(found, key=lambda finding: finding.gain is not None)
    return list(dict.fromkeys(name for finding in first for name in finding.try_next))


def _show_next(
    target: Path, state: Path, found: SettingsPlan, job: Sequence[str], goes_on: str
) -> None:
    click.echo(f"written to {target}", err=True)
    if found.chosen:
        words = ("dltune", "run", "--plan", str(target), "--", *job)
        click.echo(f"next: {shlex.join(words)}", err=True)
    if goes_on:
        click.echo(
            f"some settings were not tried; to continue from {state}, use {goes_on} with a larger "
            "--budget",
            err=True,
        )
