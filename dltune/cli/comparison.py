"""The table of a bench: measured beside predicted."""

from __future__ import annotations

import shlex

import click

from dltune.cli.tables import table
from dltune.documents.bench import Bench, Setting

COLUMNS = (
    "setting",
    ">intra x inter",
    ">step ms",
    ">spread",
    ">time / reference",
    ">95 % interval",
    ">predicted ms",
    ">predicted ratio",
    ">efficiency",
    ">CPU s",
    ">switches vol.",
    ">invol.",
)
NONE = "-"


def show(bench: Bench) -> None:
    """Print the table, and what its columns mean."""
    if bench.partial:
        click.echo(f"this comparison is partial: {bench.partial}")
    measured = [setting for setting in bench.settings if setting.summary]
    if not measured:
        return
    rounds = min(len(setting.turns) for setting in measured)
    by_name = {setting.name: setting for setting in bench.settings}
    reference = by_name[bench.reference]
    title = f"{shlex.join(bench.command)}: {rounds} round{'s' * (rounds > 1)} of interleaved turns"
    table(title, COLUMNS, [_row(setting, reference) for setting in measured])
    click.echo(
        f"ratios are over {bench.reference}, below 1 is faster; efficiency is T(1 core) / "
        f"({len(bench.machine.cores)} cores x T); CPU seconds and context switches are per step"
    )
    levels = {s.summary.ratio.confidence for s in measured if s.summary and s.summary.ratio}
    if levels and min(levels) < 0.95:
        click.echo(
            f"with {rounds} rounds the interval is the whole range, which holds the true ratio "
            f"with {min(levels):.0%}: 6 rounds or more give 95 %"
        )
    if (plan := by_name.get("plan")) and plan.summary:
        click.echo(f"the plan is {bench.strategy}{_twins(plan, bench)}")


def _row(setting: Setting, reference: Setting) -> tuple[str, ...]:
    found = setting.summary
    assert found is not None
    ratio = found.ratio
    is_reference = setting is reference
    predicted = setting.predicted
    expected = predicted / reference.predicted if predicted and reference.predicted else None
    return (
        setting.name,
        f"{setting.intra}x{setting.inter}",
        f"{found.step.median * 1e3:.2f}",
        f"{found.step.spread:.1%}",
        f"{ratio.median:.3f}" if ratio else "1" if is_reference else NONE,
        f"{ratio.low:.3f} to {ratio.high:.3f}" if ratio else NONE,
        NONE if predicted is None else f"{predicted * 1e3:.2f}",
        NONE if expected is None else f"{expected:.3f}",
        NONE if found.efficiency is None else f"{found.efficiency:.3f}",
        f"{found.cpu_seconds:.3g}",
        f"{found.voluntary:.0f}",
        f"{found.involuntary:.0f}",
    )


def _twins(plan: Setting, bench: Bench) -> str:
    """Settings that are the very same as the plan: how they differ is noise."""
    if not bench.strategy.startswith("uniform"):
        return ""
    pair = (plan.intra, plan.inter, plan.cpus)
    twins = [s.name for s in bench.settings if s is not plan and (s.intra, s.inter, s.cpus) == pair]
    if not twins:
        return ""
    return f", the same setting as {' and '.join(twins)}: what they differ by is noise"
