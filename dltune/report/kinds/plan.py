"""A plan: what each strategy is predicted to take (Fig. 3), what was decided for each op, and what
the settings around the ops did."""

from __future__ import annotations

from dltune.documents.bench import Bench
from dltune.documents.plan import Plan, Threads, load
from dltune.documents.sections.settings import SettingsPlan
from dltune.report.charts.bars import bar
from dltune.report.markup import Markup, tag
from dltune.report.pairing import bench_of, profiles_of
from dltune.report.section import Context, Finding, Loaded, Section, Shown
from dltune.report.sections.settings import interval, settings, told, untried
from dltune.report.table import key_cell, table

__all__ = ["load", "show"]

ROWS = 500


def show(loaded: Loaded, context: Context) -> Shown:
    plan = loaded.document
    assert isinstance(plan, Plan)
    at = loaded.prefix
    sections = []
    section = plan.threads
    if section:
        body = _strategies(section, bench_of(plan, context), at)
        sections.append(Section(f"{at}-strategies", "Strategies", body))
        sections.append(Section(f"{at}-plan", "Planned ops", _ops(section, at)))
    around = plan.settings
    if around:
        body = settings(around, at)
        sections.append(Section(f"{at}-settings", "Settings around the ops", body))
    if around and around.untried:
        sections.append(Section(f"{at}-untried", "Not tried", untried(around, at)))
    findings = _findings(section) if section else []
    if around:
        findings.append(_tuned(around))
    remarks = []
    if context.of("dltune.profile") and not profiles_of(plan, context):
        remarks.append("This plan is for other graphs than those of the profiles on this page.")
    return Shown(
        title=f"Plan {loaded.path.name}",
        head=[
            ("planned for", f"{plan.cores} cores: {plan.machine_name}"),
            ("TensorFlow", plan.tensorflow),
            ("made", f"{plan.created}, dltune {plan.dltune}"),
            ("profile", plan.profile[:16]),
        ],
        sections=sections,
        findings=findings,
        remarks=remarks,
    )


def _findings(section: Threads) -> list[Finding]:
    chosen = next(p for p in section.predictions if p.setting == section.strategy)
    sentence = (
        f"The plan is {section.strategy}, predicted to take {chosen.seconds * 1e3:.1f} ms a round: "
        f"{chosen.speedup:.3f}x as fast as TensorFlow's recommended setting"
    )
    if not section.ops:
        sentence += ", and no per-op plan is predicted faster"
    return [Finding(1, sentence + ".")]


def _tuned(section: SettingsPlan) -> Finding:
    found = section.whole
    if not section.chosen or found is None:
        return Finding(1, "No setting around the ops was found to make the job faster.")
    sentence = (
        f"With {told(section.chosen)} a step takes {found.ratio:.3f} of its time as given "
        f"({found.confidence:.0%} interval {interval(found)}, {found.rounds} rounds)"
    )
    if better := section.recommended:
        sentence += f", and {better.ratio:.3f} of that under TensorFlow's recommendation"
    return Finding(0, sentence + ".")


def _strategies(section: Threads, bench: Bench | None, prefix: str) -> Markup:
    measured: dict[str, float] = {}
    for setting in bench.settings if bench else ():
        if setting.summary:
            # the bench calls the plan's setting "plan", and the best uniform one "uniform"
            uniform = f"uniform {setting.intra}x{setting.inter}"
            name = {"plan": section.strategy, "uniform": uniform}.get(setting.name, setting.name)
            measured.setdefault(name, setting.summary.step.median)
    most = max((p.speedup for p in section.predictions), default=1.0) or 1.0
    rows = [
        (
            found.setting,
            f"{found.seconds * 1e3:.1f}",
            bar(found.speedup / most, "bar chosen" if _is(found.setting, section) else "bar"),
            f"{found.speedup:.3f}",
            f"{found.corunning:.2f}",
            f"{measured[found.setting] * 1e3:.1f}" if found.setting in measured else "",
            "planned" if _is(found.setting, section) else "",
        )
        for found in section.predictions
    ]
    heads = (
        *("setting", ">predicted ms", "", ">speed-up over recommended", ">ops in flight"),
        *(">measured ms", "plan"),
    )
    caption = "Predicted time of a round of the steps by strategy (Fig. 3)"
    return table(f"{prefix}-strategies-table", caption, heads, rows)


def _is(setting: str, section: Threads) -> bool:
    return setting == section.strategy


def _ops(section: Threads, prefix: str) -> Markup:
    uniform = section.uniform
    if not section.ops:
        text = f"The whole plan is one setting: intra-op {uniform.intra}, inter-op {uniform.inter}."
        return tag("p", text)
    rows = [
        (
            key_cell(op.key),
            str(op.threads),
            op.placement,
            f"{op.seconds * 1e3:.3f}",
            f"{op.serial * 1e3:.3f}",
            ", ".join(f"{c.threads} {c.placement}" for c in op.candidates),
        )
        for op in section.ops[:ROWS]
    ]
    heads = ("op", ">threads", "placement", ">predicted ms", ">1 thread ms", "may co-run with")
    caption = (
        f"Ops with an entry of their own; the rest on intra-op {uniform.intra}, "
        f"inter-op {uniform.inter}"
    )
    return table(f"{prefix}-plan-table", caption, heads, rows)
