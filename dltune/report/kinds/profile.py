"""The view of a profile: where a step's time goes, op by op, and how it runs on the cores."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterator, Sequence

from dltune.analysis import op_tables
from dltune.analysis.op_causes import why
from dltune.analysis.roofline import Analysis, analyse
from dltune.analysis.step_parts import unmeasured
from dltune.base.formatting import Key, Table, columns
from dltune.findings.evidence import Evidence
from dltune.findings.rule import apply_rules
from dltune.report.markup import Markup, divided, joined, legend, short, tag
from dltune.report.page import plan_of
from dltune.report.sections import ops
from dltune.report.sections.ops import counters, rates
from dltune.report.sections.timelines import fig4, timelines
from dltune.report.sections.timelines import memory as memory_over_time
from dltune.report.timeline import Execution, Simulations, executions
from dltune.schemas.diagnosis import Finding
from dltune.schemas.plan import Threads
from dltune.schemas.profile import Memory, Profile, Step
from dltune.views import (
    Context,
    Findings,
    Headline,
    Picture,
    Piece,
    Section,
    View,
    on_page,
    on_terminal,
)


def steps(profile: Profile) -> Iterator[Piece]:
    """Yield the training steps: their times, and where the time of a step goes."""
    rows = [
        (
            step.name or step.signature,
            f"{step.wall.median * 1e3:.1f}",
            f"{step.wall.spread:.0%}",
            f"{step.span.median * 1e3:.1f}",
            f"{sum(node.repeats for node in step.nodes):.0f}",
            str(step.executions),
            f"{step.share:.1%}",
        )
        for step in profile.steps
    ]
    heads = columns(
        *("step", ">wall ms", ">spread", ">first op to last ms", ">ops"),
        *(">executions", ">of all op time"),
    )
    yield from on_page(Table("steps of the job", heads, rows, name="steps-table"))
    for step in profile.steps:
        yield Picture(functools.partial(_parts, step))
        if step.lines:
            lines = [(line.where, f"{line.share:.0%}") for line in step.lines]
            title = "lines of Python sampled between executions"
            heads = columns("line", ">share of samples")
            yield from on_page(Table(title, heads, lines, name=f"lines-{step.signature}"))


def _parts(step: Step, _: str) -> Markup:
    whole = sum(part.seconds for part in step.parts)
    if whole <= 0:
        return Markup()
    shares = [(part, part.seconds / whole) for part in step.parts if part.seconds > 0]
    parts = [
        (f"{part.name} {part.seconds * 1e3:.3g} ms ({share:.0%})", share) for part, share in shares
    ]
    name = short(step.name or step.signature)
    return joined([tag("h4", "Wall time of ", name), divided(parts)])


TOP = 12  # ops on a terminal


def view(profile: Profile, context: Context) -> View:
    plan = plan_of(profile, context)
    analysis = analyse(profile)
    found = apply_rules(Evidence(profile=analysis))
    sections = [Section("steps", "Steps", [*steps(profile), *on_terminal(*_steps(profile))])]
    if found:
        title = "Where the step spends its time"
        sections.append(Section("findings", title, on_page(Findings(found))))
    timed = bool(analysis.top(1))
    if timed:
        chosen = ops.choices(analysis, plan)
        point = (
            "the plan's" if plan and plan.of(Threads) else "the fastest measured, without a plan"
        )
        curves = Picture(lambda _: joined([_curves_legend(point), ops.curves(analysis, chosen)]))
        sections += [
            Section("types", "Time by op type", on_page(ops.types(analysis))),
            Section("scaling", "Thread scaling", [curves]),
            Section("ops", "Ops", [Picture(lambda at: ops.ops(analysis, chosen, at))]),
        ]
    sections.append(Section("top", "", on_terminal(*_top(analysis, context.top or TOP))))
    made = functools.cache(lambda: executions(profile, plan))
    for number in range(len(profile.steps)):
        sections += _executed(profile, number, lambda number: made()[0][number])
    if timed:
        sections.append(Section("rates", "Rates and roofline", list(rates(analysis))))
    if profile.counters:
        sections.append(Section("counters", "Counters", list(counters(profile.counters))))
    sections.append(Section("closing", "", on_terminal(*_closing(profile, found))))
    return View(
        title="Profile",
        head=_head(profile),
        sections=sections,
        headlines=_headlines(analysis, found),
        remarks=_remarks(profile, lambda: made()[1]),
    )


def _steps(profile: Profile) -> Iterator[str]:
    for step in profile.steps:
        yield (
            f"step {step.name or step.signature}: {step.wall.median * 1e3:.1f} ms as found (spread "
            f"{step.wall.spread:.0%}), {sum(n.repeats for n in step.nodes):.0f} ops, "
            f"{step.executions} executions"
        )
        if step.parts:
            yield f"  {op_tables.parts(step)}"
    yield (
        f"{profile.framework.title}, threads as found: intra-op {profile.settings.intra}, inter-op "
        f"{profile.settings.inter}; {len(profile.machine.cores)} cores: {profile.machine.name}"
    )
    for link in profile.links:
        yield f"tensors from {link.sender} {op_tables.link(link)}"
    if profile.memory:
        yield f"tensors: {_memory(profile.memory)}"


def _top(analysis: Analysis, top: int) -> Iterator[Piece]:
    """Yield the ops that take the most time, their rates, and the reasons for their times."""
    profile = analysis.profile
    heavy = analysis.top(top)
    if heavy:
        yield op_tables.times(heavy)
    own = op_tables.own_times(profile.ops, top, op_tables.WORTH if heavy else 0.0)
    if own.rows or not heavy:
        yield own
    if profile.framework.capabilities.is_eager:
        passes = op_tables.both_passes(profile, top)
        if passes.rows:
            yield passes
    rates = op_tables.rates(heavy)
    if len(rates.columns) > 2:
        yield rates
        yield from filter(None, (*op_tables.ceilings(analysis.roofline), op_tables.scaled(heavy)))
    if heavy:
        yield from ("", "reasons for these op times")
    for figures in heavy:
        yield Key(figures.op.key)
        yield f"      {why(figures, analysis)[1]}"


def _closing(profile: Profile, found: Sequence[Finding]) -> Iterator[Piece]:
    if found:
        yield Findings(found)
    for note in (*profile.notes, *unmeasured(profile)):
        yield from ("", f"note: {note}")
    if profile.partial:
        yield from ("", f"this profile is incomplete: {profile.partial}")


def _executed(
    profile: Profile, number: int, execution: Callable[[int], Execution]
) -> Iterator[Section]:
    """Yield the measured and simulated executions of a step, drawn when a page is made."""
    step = profile.steps[number]
    of = f" of {short(step.name or step.signature)}" if len(profile.steps) > 1 else ""
    for name, title, draw in (
        (
            "timeline",
            "Timelines",
            lambda at: timelines(profile, execution(number), f"{at}-slices{number}"),
        ),
        ("corun", "Co-running ops", lambda _: fig4(execution(number))),
        ("memory", "Memory", lambda _: memory_over_time(profile.memory, execution(number))),
    ):
        yield Section(f"{name}{number}", f"{title}{of}", [Picture(draw)])


def _curves_legend(point: str) -> Markup:
    names = [
        ("line spread", "threads spread over tiles"),
        ("line shared", "threads sharing tiles"),
        ("dotring", f"chosen: {point}"),
    ]
    return joined([tag("p", "Median milliseconds by threads, one op at a time."), legend(names)])


def _head(profile: Profile) -> list[tuple[str, str]]:
    found = [
        ("command", shlex.join(profile.command)),
        ("machine", f"{len(profile.machine.cores)} cores: {profile.machine.name}"),
        (
            "framework",
            f"{profile.framework.title}, intra-op {profile.settings.intra}, "
            f"inter-op {profile.settings.inter}",
        ),
        ("made", f"{profile.created}, dltune {profile.dltune}"),
    ]
    if profile.memory:
        found.append(("tensors", _memory(profile.memory)))
    return found


def _memory(memory: Memory) -> str:
    live, peak = memory.live / 2**20, memory.peak / 2**20
    return f"{live:.0f} MiB live between steps, {peak:.0f} MiB at the peak"


def _headlines(analysis: Analysis, found: Sequence[Finding]) -> list[Headline]:
    profile = analysis.profile
    if not profile.steps:
        return [Headline(2, "No training step was found in this job.")]
    step = max(profile.steps, key=lambda found: found.share)
    wall = f"A step takes {step.wall.median * 1e3:.1f} ms under the job's own settings"
    headlines = [Headline(2, f"{wall}; {found[0].title}." if found else f"{wall}.")]
    heavy = analysis.top(1)
    if heavy:
        kinds: dict[str, float] = {}
        for figures in analysis.ops:
            kinds[figures.op.type] = kinds.get(figures.op.type, 0.0) + figures.share
        kind = max(kinds, key=lambda name: kinds[name])
        sentence = (
            f"{short(kind)} takes {kinds[kind]:.0%} of all op time, and one op of type "
            f"{short(heavy[0].op.type)} alone {heavy[0].share:.0%}: {why(heavy[0], analysis)[1]}."
        )
        headlines.append(Headline(3, sentence))
    return headlines


def _remarks(profile: Profile, simulated: Callable[[], Simulations]) -> Iterator[str]:
    if profile.partial is not None:
        yield f"This profile is partial: {profile.partial}."
    yield from profile.notes
    yield from unmeasured(profile)
    simulations = simulated()
    if remark := simulations.remark:
        yield remark[0].upper() + remark[1:]
    if simulations.calibration and simulations.calibration.doubtful:
        yield (
            "Ops took very different times in the job and when they were measured one by one, "
            "probably because other programs ran on the machine. Simulated times are unreliable."
        )
