"""A profile: where a step's time goes, op by op, and how it runs on the cores."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from dltune.analysis.figures import Analysis, analyse
from dltune.analysis.parts import unmeasured
from dltune.analysis.why import why
from dltune.documents.finding import Finding
from dltune.documents.profile import Profile, load
from dltune.documents.sections.threads import Threads
from dltune.findings.evidence import Evidence
from dltune.findings.registry import apply_rules
from dltune.report.charts.marks import legend
from dltune.report.execution import Simulations, executions
from dltune.report.markup import Markup, joined, short, tag
from dltune.report.pairing import plan_of
from dltune.report.section import Context, Loaded, Section, Shown, findings
from dltune.report.sections import ops, roofline
from dltune.report.sections.memory import memory
from dltune.report.sections.steps import steps
from dltune.report.sections.timelines import fig4, timelines
from dltune.views import Headline

__all__ = ["load", "show"]


def show(loaded: Loaded, context: Context) -> Shown:
    profile = loaded.document
    assert isinstance(profile, Profile)
    at = loaded.prefix
    plan = plan_of(profile, context)
    analysis = analyse(profile)
    sections = [Section(f"{at}-steps", "Steps", steps(profile, at))]
    found = apply_rules(Evidence(profile=analysis))
    if found:
        sections.append(
            Section(f"{at}-findings", "Where the step spends its time", findings(found))
        )
    if analysis.top(1):
        chosen = ops.choices(analysis, plan)
        point = (
            "the plan's" if plan and plan.of(Threads) else "the fastest measured, without a plan"
        )
        sections += [
            Section(f"{at}-types", "Time by op type", ops.types(analysis, at)),
            Section(
                f"{at}-scaling",
                "Thread scaling",
                joined([_curves_legend(point), ops.curves(analysis, chosen)]),
            ),
            Section(f"{at}-ops", "Ops", ops.ops(analysis, chosen, at)),
        ]
    made, simulations = executions(profile, plan)
    for number, execution in enumerate(made):
        name = short(execution.step.name or execution.step.signature)
        of = f" of {name}" if len(made) > 1 else ""
        sections += [
            Section(
                f"{at}-timeline{number}",
                f"Timelines{of}",
                timelines(profile, execution, f"{at}-slices{number}"),
            ),
            Section(f"{at}-corun{number}", f"Co-running ops{of}", fig4(execution)),
            Section(f"{at}-memory{number}", f"Memory{of}", memory(profile.memory, execution)),
        ]
    if analysis.top(1):
        sections.append(Section(f"{at}-rates", "Rates and roofline", roofline.rates(analysis, at)))
    if profile.counters:
        body = roofline.counters(profile.counters, at)
        sections.append(Section(f"{at}-counters", "Counters", body))
    return Shown(
        title=f"Profile {loaded.path.name}",
        head=_head(profile),
        sections=sections,
        headlines=_headlines(analysis, found),
        remarks=_remarks(profile, simulations),
    )


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
        live, peak = profile.memory.live / 2**20, profile.memory.peak / 2**20
        text = f"{live:.0f} MiB live between steps, {peak:.0f} MiB at the peak"
        found.append(("tensors", text))
    return found


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


def _remarks(profile: Profile, simulations: Simulations) -> list[str]:
    found = [] if profile.partial is None else [f"This profile is partial: {profile.partial}."]
    found += [*profile.notes, *unmeasured(profile)]
    if simulated := simulations.remark:
        found.append(simulated[0].upper() + simulated[1:])
    if simulations.calibration and simulations.calibration.doubtful:
        found.append(
            "Ops took very different times in the job and when they were measured one by one, "
            "probably because other programs ran on the machine. Simulated times are unreliable."
        )
    return found
