"""What dltune's core registers: the commands, planners, rules and documents without a system."""

from __future__ import annotations

from dltune.extensions import Command, DocumentKind, Extension

START, MEASURE, DECIDE = "Start here", "Measure", "Decide"
READ, KEEP = "Read", "Keep it fast"


def _command(group: str, name: str, summary: str) -> Command:
    return Command(group, summary, f"dltune.cli.{name}:command")


EXTENSION = Extension(
    name="core",
    commands={
        "diagnose": _command(
            START, "diagnose", "Find out why training is slow, and how to fix it."
        ),
        "tune": _command(START, "tune", "Find the settings under which a job runs fastest."),
        "run": _command(START, "run", "Run an unmodified job under a plan."),
        "profile": _command(
            MEASURE, "profile", "Measure a training step op by op, at each thread count."
        ),
        "bench": _command(MEASURE, "bench", "Compare a plan with other settings of a job."),
        "doctor": _command(MEASURE, "doctor", "Check what dltune can measure on this machine."),
        "plan": _command(DECIDE, "plan", "Make a plan from a profile: threads, memory, ranks."),
        "model": _command(DECIDE, "model", "Train a regression model that predicts op times."),
        "show": _command(READ, "show", "Print a saved profile."),
        "report": _command(READ, "report", "Write an HTML page, or a timeline for Perfetto."),
        "compare": _command(READ, "compare", "Compare two profiles, or two benchmark results."),
        "gate": _command(KEEP, "gate", "Fail a build when a command has become slower."),
    },
    planners={
        "threads": "dltune.planners.threads.planner:PLANNER",
        "settings": "dltune.planners.settings.planner:PLANNER",
    },
    rules=(
        "dltune.findings.memory",
        "dltune.findings.cores",
        "dltune.findings.python",
        "dltune.findings.data",
        "dltune.findings.ops",
    ),
    documents={
        "dltune.profile": DocumentKind(
            "dltune.documents.profile:load", ("ops",), "dltune.report.kinds.profile:show"
        ),
        "dltune.plan": DocumentKind(
            "dltune.planners.plan:load",
            # the last for a plan whose sections list nothing, such as one of memory
            (
                "threads.ops",
                "threads.predictions",
                "settings.effects",
                "files",
                "allreduce.cores",
                "parallelism.operators",
                "document",
            ),
            "dltune.report.kinds.plan:show",
        ),
        "dltune.bench": DocumentKind(
            "dltune.documents.bench:load", ("settings",), "dltune.report.kinds.bench:show"
        ),
        "dltune.tune": DocumentKind("dltune.documents.tune:load", ("trials",)),
        "dltune.gate": DocumentKind(
            "dltune.documents.gate:load", ("verdicts",), "dltune.report.kinds.gate:show"
        ),
        "dltune.gate-baseline": DocumentKind("dltune.documents.gate:load_baseline", ("measured",)),
        "dltune.gate-history": DocumentKind("dltune.gate.history:load", ("points",)),
        "dltune.graph": DocumentKind("dltune.documents.graph:load", ("nodes",)),
        "dltune.machine": DocumentKind("dltune.documents.machine:load", ("cores",)),
        "dltune.diagnosis": DocumentKind(
            "dltune.documents.diagnosis:load", ("findings",), "dltune.report.kinds.diagnosis:show"
        ),
        "dltune.roofs": DocumentKind("dltune.documents.roofs:load", ("peaks",)),
    },
)
