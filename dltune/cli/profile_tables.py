"""A profile on a terminal: where a step's time goes, op by op, and why."""

from __future__ import annotations

from pathlib import Path

import click

from dltune.cli.tables import across, cut, show
from dltune.documents.profile import Profile


def show_profile(profile: Profile, path: Path, top: int) -> None:
    """What a person wants to know of a fresh profile, and what to do with it."""
    describe(profile, top)
    next_ = "plan" if any(op.times for op in profile.ops) else "report"
    click.echo(f"\nprofile written to {path}; next: dltune {next_} {path}")


def describe(profile: Profile, top: int) -> None:
    """The steps and where their time goes, the ops that take the time, and why they do."""
    from dltune.analysis import derived
    from dltune.analysis.figures import analyse
    from dltune.analysis.parts import unmeasured
    from dltune.analysis.why import why
    from dltune.cli.results import show_findings
    from dltune.findings.evidence import Evidence
    from dltune.findings.registry import apply_rules

    for step in profile.steps:
        name = step.name or step.signature
        click.echo(
            f"step {name}: {step.wall.median * 1e3:.1f} ms as found (spread "
            f"{step.wall.spread:.0%}), {sum(n.repeats for n in step.nodes):.0f} ops, "
            f"{step.executions} executions"
        )
        if step.parts:
            click.echo(f"  {derived.parts(step)}")
    click.echo(
        f"{profile.framework.title}, threads as found: intra-op {profile.settings.intra}, inter-op "
        f"{profile.settings.inter}; {len(profile.machine.cores)} cores: {profile.machine.name}"
    )
    for link in profile.links:
        click.echo(f"tensors from {link.sender} {derived.link(link)}")
    if profile.memory:
        live, peak = profile.memory.live / 2**20, profile.memory.peak / 2**20
        click.echo(f"tensors: {live:.0f} MiB live between steps, {peak:.0f} MiB at the peak")
    analysis = analyse(profile)
    heavy = analysis.top(top)
    if heavy:
        show(derived.times(heavy))
    as_they_ran = derived.own_times(profile.ops, top, derived.WORTH if heavy else 0.0)
    if as_they_ran.rows or not heavy:
        show(as_they_ran)
    if profile.framework.capabilities.is_eager:
        differentiated = derived.both_passes(profile, top)
        if differentiated.rows:
            show(differentiated)
    rates = derived.rates(heavy)
    if len(rates.columns) > 2:
        show(rates)
        for line in (*derived.ceilings(analysis.roofline), derived.scaled(heavy)):
            if line:
                click.echo(line)
    if heavy:
        click.echo("\nreasons for these op times")
    for figures in heavy:
        click.echo(f"  {cut(figures.op.key, across() - 2)}")
        click.echo(f"      {why(figures, analysis)[1]}")
    if profile.counters:
        click.echo(f"\ncounters ({profile.counters.asked}): {profile.counters.why}")
        if profile.counters.totals:
            show(derived.totals(profile.counters.totals))
        if profile.counters.overhead:
            click.echo(derived.overhead(profile.counters.overhead))
    if found := apply_rules(Evidence(profile=analysis)):
        show_findings(found)
    for note in (*profile.notes, *unmeasured(profile)):
        click.echo(f"\nnote: {note}")
    if profile.partial:
        click.echo(f"\nthis profile is incomplete: {profile.partial}")
