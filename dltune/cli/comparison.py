"""A bench on a terminal: its tables, and what their columns mean."""

from __future__ import annotations

import shlex

import click

from dltune.bench import tables
from dltune.cli.tables import show as draw
from dltune.documents.bench import Bench, Setting
from dltune.visible import visible


def show(bench: Bench) -> None:
    """Print the tables, and what their columns mean."""
    if bench.partial:
        click.echo(f"this comparison is partial: {bench.partial}")
    measured = tables.measured(bench)
    if not measured:
        return
    click.echo(visible(shlex.join(bench.command)))
    draw(tables.times(bench), gap=False)
    click.echo(f"ratios are over {bench.reference}: below 1 is faster")
    draw(tables.costs(bench))
    click.echo("")
    rounds = min(len(setting.turns) for setting in measured)
    levels = {s.summary.ratio.confidence for s in measured if s.summary and s.summary.ratio}
    if levels and min(levels) < 0.95:
        click.echo(
            f"with {rounds} rounds the interval is the whole range, which holds the true ratio "
            f"with {min(levels):.0%}: 6 rounds or more give 95 %"
        )
    if plan := next((setting for setting in measured if setting.name == "plan"), None):
        parts = [bench.strategy, *map(str, plan.choices)]
        click.echo(f"the plan is {', '.join(filter(None, parts))}{_twins(plan, bench)}")


def _twins(plan: Setting, bench: Bench) -> str:
    """Settings that are the very same as the plan: how they differ is noise."""
    if plan.choices or not bench.strategy.startswith("uniform"):
        return ""
    pair = (plan.intra, plan.inter, plan.cpus)
    twins = [s.name for s in bench.settings if s is not plan and (s.intra, s.inter, s.cpus) == pair]
    if not twins:
        return ""
    return f", the same setting as {' and '.join(twins)}: what they differ by is noise"
