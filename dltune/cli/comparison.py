"""The tables of a bench: measured beside predicted, and what it cost."""

from __future__ import annotations

import shlex

import click

from dltune.cli.tables import table
from dltune.documents.bench import Bench, Setting

TIMES = (
    "setting",
    ">pools",
    ">step ms",
    ">spread",
    ">ratio",
    ">95 % interval",
    ">predicted ms",
    ">ratio",
)
COSTS = ("setting", ">efficiency", ">CPU s", ">voluntary", ">involuntary")
NONE = "-"


def show(bench: Bench) -> None:
    """Print the tables, and what their columns mean."""
    if bench.partial:
        click.echo(f"this comparison is partial: {bench.partial}")
    measured = [setting for setting in bench.settings if setting.summary]
    if not measured:
        return
    rounds = min(len(setting.turns) for setting in measured)
    by_name = {setting.name: setting for setting in bench.settings}
    reference = by_name[bench.reference]
    command = shlex.join(bench.command)
    title = f"{command}\n{rounds} round{'s' * (rounds > 1)}; pools are intra-op x inter-op threads"
    table(title, TIMES, [_times(setting, reference) for setting in measured])
    click.echo(f"ratios are over {bench.reference}: below 1 is faster\n")
    title = "CPU time and context switches are per step"
    costs = [COSTS, *map(_costs, measured)]
    if any(setting.summary and setting.summary.efficiency for setting in measured):
        title = f"efficiency is T(1 core) / ({len(bench.machine.cores)} x T); {title}"
    else:  # one core was not measured
        costs = [(name, *rest) for name, _, *rest in costs]
    table(title, costs[0], costs[1:])
    click.echo("")
    levels = {s.summary.ratio.confidence for s in measured if s.summary and s.summary.ratio}
    if levels and min(levels) < 0.95:
        click.echo(
            f"with {rounds} rounds the interval is the whole range, which holds the true ratio "
            f"with {min(levels):.0%}: 6 rounds or more give 95 %"
        )
    if (plan := by_name.get("plan")) and plan.summary:
        parts = [bench.strategy, *map(str, plan.choices)]
        click.echo(f"the plan is {', '.join(filter(None, parts))}{_twins(plan, bench)}")


def _times(setting: Setting, reference: Setting) -> tuple[str, ...]:
    found = setting.summary
    assert found is not None
    ratio = found.ratio
    predicted = setting.predicted
    expected = predicted / reference.predicted if predicted and reference.predicted else None
    return (
        setting.name,
        f"{setting.intra}x{setting.inter}",
        f"{found.step.median * 1e3:.2f}",
        f"{found.step.spread:.1%}",
        f"{ratio.median:.3f}" if ratio else "1" if setting is reference else NONE,
        f"{ratio.low:.3f} to {ratio.high:.3f}" if ratio else NONE,
        NONE if predicted is None else f"{predicted * 1e3:.2f}",
        NONE if expected is None else f"{expected:.3f}",
    )


def _costs(setting: Setting) -> tuple[str, ...]:
    found = setting.summary
    assert found is not None
    return (
        setting.name,
        NONE if found.efficiency is None else f"{found.efficiency:.3f}",
        f"{found.cpu_seconds:.3g}",
        f"{found.voluntary:.0f}",
        f"{found.involuntary:.0f}",
    )


def _twins(plan: Setting, bench: Bench) -> str:
    """Settings that are the very same as the plan: how they differ is noise."""
    if plan.choices or not bench.strategy.startswith("uniform"):
        return ""
    pair = (plan.intra, plan.inter, plan.cpus)
    twins = [s.name for s in bench.settings if s is not plan and (s.intra, s.inter, s.cpus) == pair]
    if not twins:
        return ""
    return f", the same setting as {' and '.join(twins)}: what they differ by is noise"
